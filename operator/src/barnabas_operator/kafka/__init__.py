"""Requests to a cluster, over the Kafka protocol."""
