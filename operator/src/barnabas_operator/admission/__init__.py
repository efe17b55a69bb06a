"""The admission of resources: the webhook, and the dry runs that it asks for."""
