"""The requests to a cluster, over the Kafka protocol."""
