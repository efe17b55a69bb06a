"""Apache Kafka's message definitions as JSON, for broker and operator (license in LICENSE and NOTICE)."""
