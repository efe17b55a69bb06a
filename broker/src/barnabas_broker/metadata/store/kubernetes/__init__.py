"""The metadata store on the Kubernetes API.

It is imported only if `metadata.store` names it, because its HTTP client is large.
"""
