"""Pure: checks and diffs, from what is declared and what is there to steps."""
