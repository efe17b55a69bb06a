"""The requests of the console to the Kubernetes API."""
