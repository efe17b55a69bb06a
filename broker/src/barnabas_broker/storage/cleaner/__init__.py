"""Compaction: of each key the newest value stays.

`planning` decides on the loop which log and how far (dirty ratio, lags, groups of segments). The helper process
(`storage.helper`) does the work on batches, one request at a time: first it finds the newest offset of each key
(`key_map`), then it writes one new segment after the other (`segment_cleaning`). The loop swaps each in (`manager`)
before it asks for the next, so a round needs the disk space of one segment more.

As in Kafka, with three differences. The last batch of every new segment stays, empty if need be: a start after a crash
sees from the segment alone which old ones it replaces. A delete horizon is set only once the tombstone's key is in the
map. A batch whose records cannot be decoded stays as it is, and is counted. A partition that fails is tried again after
a pause that doubles up to 15 minutes (KAFKA-19895). A marker that must stay keeps its record, so that a start from the
log alone knows its producer's epoch; Kafka empties it.
"""
