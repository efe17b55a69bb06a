"""ConsumerGroups, reconciled by a worker of their own beside that of their Cluster."""
