"""What jobs ask of brokers themselves, beside what Spark reads."""
