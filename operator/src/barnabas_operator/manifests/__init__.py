"""From a Cluster to the Kubernetes objects that it owns. Pure: no IO, no clock, no chance."""
