"""The command line of the jobs, the Spark session, and the jars of Spark's Kafka connector."""
