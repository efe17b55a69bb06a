"""The metadata store on the Kubernetes API.

This package is imported only if `metadata.store` names it, because its HTTP client is large.
"""
