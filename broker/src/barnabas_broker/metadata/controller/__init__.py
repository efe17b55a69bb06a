"""The changes of metadata, on any broker, and the controller's other work; pure decisions in `decisions`."""
