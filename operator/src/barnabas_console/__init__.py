"""`barnabas console`: pages that show any Kafka cluster with the rights of the visitor."""
