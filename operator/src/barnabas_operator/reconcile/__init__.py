"""The reconciliation of resources: a worker for each Cluster, one reconciliation after the other."""
