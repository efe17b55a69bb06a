"""Groups and producer ids: decide, append, apply."""
