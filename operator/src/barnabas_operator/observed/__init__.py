"""What is observed: the resources as the watch reported them, and metrics."""
