"""The commits of groups, how far they were behind at each commit, and how that changed over time. Pure."""
