"""One module a job: a function of a SparkSession and typed options."""
