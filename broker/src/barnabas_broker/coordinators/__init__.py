"""The coordinators of consumer groups and transactions, and the producer ids that this broker assigns."""
