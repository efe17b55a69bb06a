"""Partition logs on disk in Kafka's layout: segments, indexes, producer state, recovery, retention, compaction.

Differences from Kafka:

- A producer snapshot has an entry for each of a producer's last five batches, the newest last. Kafka writes one entry
  for each producer; when it reads a snapshot, it uses a producer's last entry.
- The files of a log's first segment are created at the first append.
- Index entries are buffered. They are written when a page is full, and at a roll, sync or close. An index may therefore
  lack entries above the recovery point; the first use of a segment completes its indexes. Invalid indexes are rebuilt.
- A start after a clean shutdown reads only directories, unless a `.log` file was changed after the shutdown marker was
  written.
- Above the recovery point, a log is truncated before the first batch that fails its CRC, as in Kafka. Below the
  recovery point, all batches were synced, so an invalid batch header there means that the disk damaged the log. The
  partition then goes offline and nothing is truncated, unless the file ends inside a batch.
"""
