"""Partition logs on disk in Kafka's layout: segments, indexes, producer state, recovery, retention, compaction.

Differences from Kafka: a producer snapshot has an entry for each of a producer's last five batches, the newest last,
and Kafka would use the last entry. Segment files are created at the first append. Index entries are buffered and
written by the page, and at a roll, sync or close; above the recovery point an index may therefore lag the log, and the
first look into a segment completes its indexes. Invalid indexes are rebuilt. A start after a clean shutdown reads only
directories, unless a `.log` file is younger than the shutdown marker.

Above the recovery point a batch that fails its CRC ends the log, as in Kafka. Below the recovery point all batches were
synced, so a wrong CRC means that the disk damaged them: the partition goes offline and nothing is truncated.
"""
