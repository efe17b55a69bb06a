"""What is observed: the resources as the watch reported them, the audit of the watch, and metrics."""
