"""The requests of the console to the brokers."""
