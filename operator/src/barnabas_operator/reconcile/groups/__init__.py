"""ConsumerGroups: looked at in a worker of their own, beside that of their Cluster."""
