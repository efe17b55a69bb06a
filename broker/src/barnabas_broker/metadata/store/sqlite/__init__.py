"""The store for brokers of one machine."""
