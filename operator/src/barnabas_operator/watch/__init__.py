"""Watches resources and what Clusters own, and tells the workers; runs the operator by kopf, which only it knows."""
