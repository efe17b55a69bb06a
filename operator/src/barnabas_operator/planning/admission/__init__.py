"""The admission review of changes to resources before the API server stores them."""
