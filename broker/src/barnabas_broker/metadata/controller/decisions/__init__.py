"""The decisions on changes of metadata: pure functions that return the new metadata or raise ApiError.

The new metadata is that of a topic or partition, for example.
"""
