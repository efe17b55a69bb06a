"""Kafka's rules as pure functions and tables, used by broker and operator alike. No IO, no clock, no chance."""
