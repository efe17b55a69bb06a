"""The helper process for long work: compaction and the checks of batches."""
