"""What every broker knows of the metadata, in memory and always current."""
