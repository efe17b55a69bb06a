"""Transactions: what the coordinator of a transactional id decides. Nothing runs it yet."""
