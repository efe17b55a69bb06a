"""Typed resources: Cluster, Topic."""
