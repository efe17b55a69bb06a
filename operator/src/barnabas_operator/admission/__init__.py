"""What may be stored: the webhook, and the dry runs that it asks for."""
