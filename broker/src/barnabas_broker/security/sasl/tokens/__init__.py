"""Signed tokens (JWT): the keys that they are verified with, and the claims that must hold."""
