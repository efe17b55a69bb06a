"""What to do about consumer groups. Pure."""
