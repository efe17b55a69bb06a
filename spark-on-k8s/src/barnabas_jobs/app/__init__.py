"""The command line: which job, its options, the Spark session and the connector."""
