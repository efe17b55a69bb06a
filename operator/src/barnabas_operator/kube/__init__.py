"""Requests to the Kubernetes API, which read and write the objects of Clusters."""
