"""The Kafka client that the operator and the lag exporter share."""
