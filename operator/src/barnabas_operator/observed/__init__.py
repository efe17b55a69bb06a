"""The observed state: the resources as the watch reported them, and metrics."""
