"""The Kubernetes objects that a Cluster owns, built from the Cluster. Pure: no IO, no clock, no chance."""
