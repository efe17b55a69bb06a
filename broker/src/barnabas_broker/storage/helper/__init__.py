"""The process that does what takes long off the loop: compaction and looks into batches."""
