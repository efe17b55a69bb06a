"""The metrics of /metrics, under the names that JMX exporter rules and kafka_exporter give them."""
