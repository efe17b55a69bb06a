"""Strimzi's manifests, read and converted to ours. Pure."""
