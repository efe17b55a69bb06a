"""The first half of a compaction: finding the newest offset of each key in the dirty section."""

from collections.abc import Iterator

from barnabas_broker.storage.cleaner.batch_reader import Pacer, ReadBatch, read_batches
from barnabas_broker.storage.cleaner.offset_map import OffsetMap
from barnabas_broker.storage.cleaner.round_transactions import RoundTransactions
from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.helper.record_walk import unpacked_records
from barnabas_broker.storage.helper.requests import KeysMapped, MapKeys
from barnabas_broker.wire.records import BrokenRecords


def map_keys(files: FileSystem, request: MapKeys, pace: Pacer) -> tuple[OffsetMap, KeysMapped]:
    """Build a map from each key to the offset of its newest record; return the map and the response to `request`.

    The map covers the records of the request below the `end_offset` of the response. Raises OSError and InvalidBatch.
    """
    keys_max = request.end_offset - request.start_offset
    offsets = OffsetMap(request.map_bytes_max, keys_max, request.load_factor)
    records = 0
    end_offset = request.end_offset
    for batch in _dirty_batches(files, request, pace):
        records += batch.header.record_count
        first_unmapped = _add(offsets, batch, request)
        if first_unmapped is not None:
            end_offset = first_unmapped
            break
    return offsets, KeysMapped(end_offset, offsets.count, records)


def _dirty_batches(files: FileSystem, request: MapKeys, pace: Pacer) -> Iterator[ReadBatch]:
    transactions = RoundTransactions(request.aborted)
    for segment in request.segments:
        file = files.open_existing(
            f"{request.directory}/{file_names.segment_file(segment.base_offset, file_names.LOG)}"
        )
        for batch in read_batches(file, segment.size_bytes, segment.base_offset, request.read_bytes, pace):
            header = batch.header
            is_dirty = header.last_offset >= request.start_offset
            if is_dirty and not header.is_control and not transactions.is_aborted(header):
                yield batch


def _add(offsets: OffsetMap, batch: ReadBatch, request: MapKeys) -> int | None:
    """Add the keys of a batch. Return the offset of the first record whose key does not fit into the map, or None.

    The keys of a batch that cannot be decoded are skipped.
    """
    base_offset = batch.header.base_offset
    try:
        _, records = unpacked_records(batch.chunk, batch.start, batch.header, request.unpacked_bytes_max)
    except BrokenRecords:
        return None
    for record in records:
        offset, key = base_offset + record[4], record[5]
        if key is not None and offset >= request.start_offset and not offsets.put(key, offset):
            return offset
    return None
