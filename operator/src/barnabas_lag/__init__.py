"""The lag exporter: how far consumer groups are behind, of any Kafka cluster, for Prometheus."""
