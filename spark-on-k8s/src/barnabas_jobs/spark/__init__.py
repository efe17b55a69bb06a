"""Records as Spark data frames: of a topic, and of an archive."""
