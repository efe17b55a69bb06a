"""The command `barnabas lag-exporter`: its options, rounds and pages."""
