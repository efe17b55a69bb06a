"""Where the metadata is kept: a store of documents and leases, on SQLite or Kubernetes."""
