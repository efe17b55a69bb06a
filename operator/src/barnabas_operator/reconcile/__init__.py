"""The workers that reconcile resources: each Cluster has a worker, which runs one reconciliation at a time."""
