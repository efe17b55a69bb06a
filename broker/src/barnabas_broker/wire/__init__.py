"""The Kafka protocol without IO: framing, the codec of messages, and record batches."""
