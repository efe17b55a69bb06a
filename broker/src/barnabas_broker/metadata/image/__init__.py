"""The image of the metadata that every broker keeps in memory."""
