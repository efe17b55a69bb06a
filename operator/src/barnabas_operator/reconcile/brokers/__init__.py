"""A Cluster's brokers: their objects applied, and one step taken with their pods."""
