"""The reconciliation of a Cluster's brokers: applies their Kubernetes objects, and restarts or removes their pods."""
