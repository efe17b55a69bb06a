"""The decisions about consumer groups. Pure."""
