"""The transaction coordinator: its decisions, its records, and the markers that it sends."""
