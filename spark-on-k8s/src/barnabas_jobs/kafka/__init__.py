"""The requests that jobs send to brokers themselves, beside what Spark reads."""
