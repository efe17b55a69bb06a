"""The coordinator of transactions: its decisions, its records, and the markers that it sends."""
