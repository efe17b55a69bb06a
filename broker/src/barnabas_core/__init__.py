"""Kafka's rules as pure functions and tables, shared by broker and operator.

Nothing here uses IO, a clock or random numbers.
"""
