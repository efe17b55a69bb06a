"""The store of metadata: documents and leases, on SQLite or Kubernetes."""
