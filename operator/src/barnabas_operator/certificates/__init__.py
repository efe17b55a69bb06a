"""Certificate authorities and what they issue."""
