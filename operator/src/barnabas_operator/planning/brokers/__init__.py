"""The planning of the brokers of a Cluster and of their Kubernetes objects."""
