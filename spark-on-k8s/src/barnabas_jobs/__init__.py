"""Spark jobs that maintain topics: archive, restore, verify, audits, skew and lag history."""
