"""The Kubernetes API: gathers what is there and applies objects."""
