"""What brings resources about: a worker for each Cluster, one reconciliation after the other."""
