"""The admission of resources: the webhook, and its dry runs."""
