"""Whether a change of a resource may be stored."""
