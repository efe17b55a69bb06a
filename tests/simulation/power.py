"""Checks what a broker may believe of its disk after a loss of power, whatever is left of the unsynced bytes."""

import sys
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk.checkpoints import decode_offsets
from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import DiskFull, InvalidBatch
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.segments.segment import SCAN_CHUNK_BYTES, scan_batches

SEGMENT_BYTES_MAX: Final = (sys.maxsize, 300, 1000)
"""The bounds of segments, one for each seed: the small logs of a simulation have many segments in most seeds."""


def unkept_promises(files: FileSystem, log_dirs: tuple[str, ...], ends: Mapping[str, int]) -> Iterator[str]:
    """Logs that have lost what lies below the recovery point that their checkpoint tells.

    `ends` is where logs ended before, by directory: one that was cut below its recovery point waits for the checkpoint.
    """
    for directory, recovery_point in _recovery_points(files, log_dirs):
        end_offset, promised = _synced_end(files, directory, recovery_point), ends.get(directory, recovery_point)
        if end_offset < min(promised, recovery_point):
            yield f"{directory} is said to be synced up to {recovery_point}, and ends at {end_offset}"


def ends_by_log(files: FileSystem, log_dirs: tuple[str, ...]) -> dict[str, int]:
    """Return where logs end, by directory; at most their recovery point."""
    points = _recovery_points(files, log_dirs)
    return {directory: _synced_end(files, directory, recovery_point) for directory, recovery_point in points}


def _recovery_points(files: FileSystem, log_dirs: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Yield the recovery points of existing logs, by directory."""
    for log_dir in log_dirs:
        try:
            recovery_points = decode_offsets(files.read(f"{log_dir}/{checkpoints.RECOVERY_POINTS}"))
        except FileNotFoundError:
            continue
        for topic_partition, recovery_point in recovery_points.items():
            directory = f"{log_dir}/{topic_partition}"
            if recovery_point and files.exists(directory):
                yield directory, recovery_point


def _synced_end(files: FileSystem, directory: str, recovery_point: int) -> int:
    """Return where the whole batches end; a swap of compaction is for the next start to finish."""
    names = [checkpoints.parse_segment_file(entry.name) for entry in files.scan(directory)]
    if any(name and name.state == checkpoints.SWAP for name in names):
        return recovery_point
    offsets = sorted(name.offset for name in names if name and name.suffix == checkpoints.LOG and not name.state)
    end_offset = offsets[0] if offsets else 0
    for offset in offsets:
        if offset < recovery_point:
            file = files.open_file(f"{directory}/{checkpoints.segment_file(offset, checkpoints.LOG)}")
            try:
                for found in scan_batches(
                    file, 0, file.size_bytes(), offset, chunk_bytes=SCAN_CHUNK_BYTES, crc_from=offset
                ):
                    end_offset = found.header.last_offset + 1
            except InvalidBatch:
                return end_offset
    return recovery_point if offsets and offsets[-1] >= recovery_point else end_offset


def wrong_beliefs(logs: LogManager) -> Iterator[str]:
    """Yield the logs of a broker that has just started which are damaged, lack a segment, or have wrong epochs.

    A log that needed space on a full disk is not damaged: it is loaded again once there is space.
    """
    for topic_partition, error in logs.failed.items():
        if not isinstance(error, DiskFull):
            yield f"{topic_partition} is damaged: {error}"
    for log in logs.logs.values():
        yield from _wrong_beliefs_of(log)


def _wrong_beliefs_of(log: Log) -> Iterator[str]:
    end_offset = None
    for segment in log.segments:
        if end_offset not in (None, segment.base_offset):
            where = " below its recovery point" if segment.base_offset <= log.syncs.recovery_point else ""
            yield f"{log.directory} has a hole{where}: it goes on at {segment.base_offset} after {end_offset}"
        end_offset = segment.base_offset
        for found in segment.batches_from(segment.base_offset):
            header, end_offset = found.header, found.header.last_offset + 1
            known = log.epochs.epoch_for_offset(header.base_offset)
            if header.base_offset >= log.log_start_offset and known != header.leader_epoch:
                yield f"{log.directory} takes offset {header.base_offset} for epoch {known}, not {header.leader_epoch}"
                return
