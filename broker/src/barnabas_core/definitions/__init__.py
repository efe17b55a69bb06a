"""Apache Kafka's message definitions as JSON (see LICENSE and NOTICE here), for broker and operator."""
