"""What is seen: the resources as the watch told them, whether it tells all, and what Prometheus is told."""
