"""The segments of a log: their files and indexes, and how compacted ones replace them."""
