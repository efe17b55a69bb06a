"""The decisions about brokers. Pure."""
