"""Requests to the Kubernetes API over asyncio, which the broker and the operator have in common."""
