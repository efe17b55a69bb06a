"""A tour of the console in a real browser, against three brokers with many topics and groups."""
