"""Log compaction, which keeps the newest record of each key.

`planning` runs on the event loop and chooses the log and the segments to compact. The helper process (`storage.helper`)
first finds the newest offset of each key (`key_map`), then writes the new segments one by one (`cleaned_segment`).
`manager` swaps in each new segment before it requests the next one, so compaction needs disk space for only one more
segment.

Differences from Kafka:

- The last batch of a new segment stays even if it is empty, so that recovery after a crash can see which old segments
  the new one replaces.
- A tombstone gets its delete horizon only when the key map of the compaction contains its key.
- A batch whose records cannot be decoded stays unchanged, and a metric counts these batches.
- A failed partition is retried after a pause that doubles up to 15 minutes (KAFKA-19895).
- A transaction marker that cannot be removed yet keeps its control record, because recovery reads the producer epoch
  from the record. Kafka writes an empty batch instead.
"""
