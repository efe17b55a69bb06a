"""The lookup of aborted transactions for fetched records, which read_committed consumers need."""

from barnabas_broker.storage.errors import disk_access
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.wire.parts import FileSlice


@disk_access
def aborted_among(log: Log, offset: int, records: FileSlice) -> list[tuple[int, int]]:
    """Return the producer id and first offset of each aborted transaction with records in `records`.

    `records` were read from `offset` on. The result is sorted by first offset, and may include transactions that began
    after `records`. Raises StorageError.
    """
    end_offset = _end_offset(log, offset, records)
    found: list[tuple[int, int]] = []
    for segment in log.segments.starting_at(offset):
        if segment.transactions:
            overlapping, is_complete = segment.transactions.overlapping(offset, end_offset)
            found += [(each.producer_id, each.first_offset) for each in overlapping]
            if is_complete:
                break
    return sorted(found, key=_first_offset)


def _end_offset(log: Log, offset: int, records: FileSlice) -> int:
    """Return an upper bound for the end offset of the fetched records, as low as the index allows."""
    for segment in log.segments.starting_at(offset):
        if segment.has_open(records.file):
            indexed = segment.indexes.offset_behind(records.position + records.length)
            return indexed or log.segments.end_offset(segment, log.log_end_offset)
    return log.log_end_offset


def _first_offset(aborted: tuple[int, int]) -> int:
    return aborted[1]
