"""The floor that authenticates clients, and decides on their rights.

Decisions are pure; credentials come from the metadata floor.
"""
