"""The offset commits of consumer groups, the lag of a group at each commit, and the history of this lag."""
