"""The Kubernetes objects of a Cluster, built by pure functions."""
