"""The operator: Cluster, Topic and ConsumerGroup resources, reconciled over the Kafka protocol."""
