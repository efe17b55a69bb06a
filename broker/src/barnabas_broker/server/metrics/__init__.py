"""The content of /metrics: families of samples under the names of the JMX exporter rules and kafka_exporter."""
