"""The changes of metadata, which run on any broker, and the background work of the controller."""
