"""What a log knows of its idempotent producers, in memory and in `.snapshot` files."""
