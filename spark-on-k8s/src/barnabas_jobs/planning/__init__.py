"""Pure decisions: options, ledger, ranges of offsets, plans and reports."""
