"""What to do with topics, why not, and what their status says."""
