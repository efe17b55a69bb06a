"""The command: options, rounds, pages, the process."""
