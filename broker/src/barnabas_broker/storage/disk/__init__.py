"""Disk access for logs: file IO, the names and small files of Kafka's layout, the cap on open files, deletion."""
