"""The schema registry: which schema a message has, and its content as JSON."""
