"""The segments of a log: their files and indexes, and their replacement by compacted segments."""
