"""Maintenance of topics as Spark jobs: archive, restore, verify, retention audit and skew, on one machine."""
