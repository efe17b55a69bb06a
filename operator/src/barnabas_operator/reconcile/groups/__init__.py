"""The reconciliation of ConsumerGroups, in a background worker for each Cluster."""
