"""The commits of groups, their lag at each commit, and its history."""
