"""Pure logic of the jobs: options, ledger, offset ranges, plans and reports."""
