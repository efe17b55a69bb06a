"""The metadata store, which keeps JSON documents and leases in SQLite or Kubernetes."""
