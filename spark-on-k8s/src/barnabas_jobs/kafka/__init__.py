"""The requests that jobs themselves send to brokers, apart from Spark's reads."""
