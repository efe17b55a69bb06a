"""The files of a log in Kafka's format, and the problems that they can have; the caller reads the files."""
