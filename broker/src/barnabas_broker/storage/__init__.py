"""Partition logs on disk in Kafka's own layout: segments, indexes, producer state, recovery, retention, compaction.

What is ours: a producer's snapshot has an entry for each of its last five batches, the newest last, which is the one
that Kafka would take. A new log makes its segment files at the first append. Index entries are written behind (a page
of them, a roll, a sync, a close); past the recovery point the index may lag the log, and every first look into a
segment brings it up to date. Indexes that cannot be right are built again. After a clean shutdown a start reads nothing
but directories, unless a `.log` is younger than the marker.

Past the recovery point a batch that fails its CRC ends the log, as in Kafka. Below it, it was synced once, so it is
damage: the partition is offline and nothing is cut.
"""
