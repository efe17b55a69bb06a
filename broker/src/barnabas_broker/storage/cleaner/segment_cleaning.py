"""The second half of a compaction: copying the records that stay from adjacent segments to one new segment."""

from barnabas_broker.storage.cleaner.batch_filter import BatchFilter
from barnabas_broker.storage.cleaner.batch_reader import Pacer, read_batches
from barnabas_broker.storage.cleaner.cleaned_segment import CleanedSegment
from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.helper.requests import CleanSegments, SegmentCleaned


def clean_segments(files: FileSystem, request: CleanSegments, batch_filter: BatchFilter, pace: Pacer) -> SegmentCleaned:
    """Write the records that stay to `.cleaned` files; remove the files after an error.

    The last batch of the old segments stays, even without records, so that the new segment ends at the same offset.
    After a crash, recovery reads from this end offset which old segments the new one replaces. Raises OSError and
    InvalidBatch.
    """
    paths = [
        f"{request.directory}/{file_names.segment_file(each.base_offset, file_names.LOG)}" for each in request.segments
    ]
    base_offset = request.segments[0].base_offset
    cleaned = CleanedSegment(files, request.directory, base_offset, request.index_interval_bytes, request.read_bytes)
    last = max((each for each in request.segments if each.size_bytes), default=None)
    try:
        for path, segment in zip(paths, request.segments, strict=True):
            file = files.open_existing(path)
            for batch in read_batches(file, segment.size_bytes, segment.base_offset, request.read_bytes, pace):
                is_last = segment is last and batch.end_position == segment.size_bytes
                kept = batch_filter.cleaned(batch, must_stay=is_last)
                if kept is not None:
                    cleaned.append(kept)
                    pace(len(kept))
        cleaned.finish(files.modified_ms(paths[-1]), batch_filter.aborted)
    except BaseException:
        cleaned.remove()
        raise
    bytes_read = sum(each.size_bytes for each in request.segments)
    return SegmentCleaned(base_offset, cleaned.size_bytes, bytes_read, batch_filter.counts)
