"""The floor that says who a client is and what it may do.

Decisions are pure; credentials come from the metadata floor.
"""
