"""The idempotent producers that a log knows, in memory and in `.snapshot` files."""
