"""The Kubernetes API: gathers the objects that exist and applies objects."""
