"""The checks of clients' batches: the records must be as the header says and as the topic allows."""
