"""The checks of clients' batches: the records must match the batch header and the topic's settings."""
