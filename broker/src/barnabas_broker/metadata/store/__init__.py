"""The metadata store, which keeps documents and leases in SQLite or Kubernetes."""
