"""Message definitions that kafka-python does not ship, in the form of Kafka's own JSON files: for both programs."""
