"""What is asked of a cluster, over the Kafka protocol."""
