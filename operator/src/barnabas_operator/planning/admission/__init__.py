"""The review of a change of a resource before it is stored."""
