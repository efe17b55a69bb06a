"""The checks of clients' batches: the records must be what the header says and what the topic allows."""
