"""The runtime of the coordinators, which loads, writes and serves the partitions of an internal topic."""
