"""The metadata store in SQLite, for brokers on one machine."""
