"""Maintenance of topics as Spark jobs: archive, restore, verify, audits, skew and lag history, on one machine."""
