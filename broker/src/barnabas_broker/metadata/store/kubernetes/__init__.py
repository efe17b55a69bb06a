"""The metadata store on the Kubernetes API. Imported only where `metadata.store` names it: its HTTP client is large."""
