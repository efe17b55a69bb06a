"""Partition logs on disk in Kafka's layout: segments, indexes, producer state, recovery, retention, compaction.

Differences from Kafka: a producer snapshot has an entry for each of a producer's last five batches, the newest last;
Kafka writes one entry for each producer, and uses a producer's last entry when it reads a snapshot. The files of a
log's first segment are created at the first append. Index entries are buffered, and written when a page is full, and at
a roll, sync or close; above the recovery point an index may therefore lack entries, and the first use of a segment
completes its indexes. Invalid indexes are rebuilt. A start after a clean shutdown reads only directories, unless a
`.log` file was changed after the shutdown marker was written.

A log is truncated before the first batch above the recovery point that fails its CRC, as in Kafka. Below the recovery
point all batches were synced, so an invalid batch header means that the disk damaged the log: the partition goes
offline and nothing is truncated, unless the file ends inside a batch.
"""
