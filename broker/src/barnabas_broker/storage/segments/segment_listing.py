"""The segments and producer snapshots in a directory listing. No file is opened."""

from collections.abc import Iterable

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileEntry
from barnabas_broker.storage.segments.segment import Segment, SegmentSizes
from barnabas_broker.storage.segments.segment_environment import SegmentEnvironment
from barnabas_core.config.log_config import LogConfig


def listed_segments(
    environment: SegmentEnvironment, directory: str, config: LogConfig, entries: Iterable[FileEntry]
) -> tuple[list[Segment], list[int]]:
    """Return the segments, oldest first, and the offsets of the producer snapshots."""
    found: dict[str, dict[int, FileEntry]] = {suffix: {} for suffix in file_names.ALL_SUFFIXES}
    for entry in entries:
        parsed = file_names.parse_segment_file(entry.name)
        if parsed and not parsed.state:
            found[parsed.suffix][parsed.offset] = entry
    segments = [
        Segment(environment, directory, offset, config, _sizes(found, offset))
        for offset in sorted(found[file_names.LOG])
    ]
    return segments, sorted(found[file_names.SNAPSHOT])


def _sizes(found: dict[str, dict[int, FileEntry]], offset: int) -> SegmentSizes:
    log = found[file_names.LOG][offset]
    index, times = found[file_names.INDEX].get(offset), found[file_names.TIME_INDEX].get(offset)
    aborted = found[file_names.TXN_INDEX].get(offset)
    return SegmentSizes(
        log.size_bytes,
        index.size_bytes if index else None,
        times.size_bytes if times else None,
        log.modified_ns // 1_000_000,
        aborted.size_bytes if aborted else 0,
    )
