"""The files of a log as Kafka lays them out, and what can be wrong with them. Pure: the caller reads the files."""
