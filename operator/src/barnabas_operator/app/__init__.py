"""The commands: up, status."""
