"""What is told to Prometheus."""
