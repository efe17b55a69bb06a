"""The plans: checks and diffs that turn what is declared and what exists into steps. Pure."""
