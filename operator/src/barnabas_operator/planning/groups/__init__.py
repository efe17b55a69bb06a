"""The planning of consumer groups: lag objectives, offset resets, scaling by lag, and deletion."""
