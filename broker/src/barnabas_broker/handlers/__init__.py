"""The handlers of Kafka's APIs, one module for each API."""
