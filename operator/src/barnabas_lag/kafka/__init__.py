"""The exporter's requests to a cluster, over the Kafka protocol."""
