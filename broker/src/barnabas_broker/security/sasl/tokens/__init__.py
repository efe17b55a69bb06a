"""Signed tokens (JWT): the public keys that verify them, and the checks of their claims."""
