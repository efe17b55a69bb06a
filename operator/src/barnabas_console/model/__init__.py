"""The rows that the console shows, and the input of visitors. Pure."""
