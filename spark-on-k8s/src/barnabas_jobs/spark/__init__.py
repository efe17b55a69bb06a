"""Records of topics and archives as Spark data frames, and what Spark reports of a running job."""
