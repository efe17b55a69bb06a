"""The image of the metadata that every broker has in memory, always current."""
