"""Pure logic of the jobs: options, archived ranges, offset ranges, plans and reports."""
