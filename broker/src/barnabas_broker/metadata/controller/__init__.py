"""Who changes the metadata, on any broker, and what the controller does besides; pure decisions in `decisions`."""
