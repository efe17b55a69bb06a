"""The runtime that coordinators share: partitions of a compacted topic are loaded, written and served."""
