"""The lag exporter: the lag of consumer groups in any Kafka cluster, for Prometheus."""
