"""The state of a log's idempotent producers, in memory and in `.snapshot` files."""
