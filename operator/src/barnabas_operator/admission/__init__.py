"""The admission of resources: the webhook, and the dry runs that the webhook requests from the API server."""
