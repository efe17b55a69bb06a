"""The helper process for work that takes long: compaction, and checks of batches."""
