"""The archive on disk: its ledger, its lock, its data files."""
