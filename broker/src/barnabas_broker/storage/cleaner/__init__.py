"""Compaction: of each key the newest value stays.

`planning` decides on the loop which log and how far; the work on batches is done by a helper process (`worker`), one
request at a time: first the newest offset of each key is found (`key_map`), then segment after segment is written anew
(`segment_cleaning`) and swapped in on the loop (`manager`). The same kind of process looks into clients' batches for
topics that need it (`inspection`).
"""
