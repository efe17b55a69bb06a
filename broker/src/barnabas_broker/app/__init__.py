"""The one place that reads the environment and wires things together."""
