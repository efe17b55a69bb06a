"""Ranges of offsets, and the choice of the ranges to archive next."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas_jobs.planning.archived import Tail
from barnabas_jobs.planning.errors import JobFailed, Refused


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` (inclusive) to `end` (exclusive)."""

    partition: int
    start: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of offsets, which may be more than records because of compaction and transactions."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"partition {self.partition} [{self.start}, {self.end})"


class Bounds(NamedTuple):
    """The log start offset of a partition, and its last stable offset (`latest`)."""

    earliest: int
    latest: int


def offsets_behind(ends: Mapping[int, int], log: Mapping[int, Bounds]) -> int:
    """Return the number of offsets in `log` that are not archived yet; `ends` has the archived end by partition."""
    return sum(max(0, each.latest - max(ends.get(partition, 0), each.earliest)) for partition, each in log.items())


def pending(archived_ends: Mapping[int, int], log: Mapping[int, Bounds]) -> list[OffsetRange]:
    """Return the ranges of offsets that the log holds and the archive does not, at most one for each partition.

    If any partition has records to archive, each partition that is not in the archive yet gets a range, even an empty
    one. From that range, the archive learns the start offset of the partition.
    """
    starts = {partition: max(archived_ends.get(partition, 0), bounds.earliest) for partition, bounds in log.items()}
    ranges = [OffsetRange(partition, starts[partition], bounds.latest) for partition, bounds in sorted(log.items())]
    if not any(each.offsets > 0 for each in ranges):
        return []
    return [each for each in ranges if each.offsets > 0 or each.partition not in archived_ends]


def gone(archived_ends: Mapping[int, int], log: Mapping[int, Bounds]) -> list[OffsetRange]:
    """Return the offset ranges that were deleted from the topic before they were archived.

    Return an empty list if the topic was never archived. For a partition that the archive does not have yet, the range
    starts at offset 0, because the partition was added to the topic after the last commit of the archive.
    """
    if not archived_ends:
        return []
    return [
        OffsetRange(partition, archived_ends.get(partition, 0), bounds.earliest)
        for partition, bounds in sorted(log.items())
        if bounds.earliest > archived_ends.get(partition, 0)
    ]


def check_log_holds(topic: str, archived_ends: Mapping[int, int], log: Mapping[int, Bounds]) -> None:
    """Raise JobFailed if an archived partition does not exist, or if its log ends before its archived offsets."""
    for partition, end in sorted(archived_ends.items()):
        latest = log[partition].latest if partition in log else None
        if latest is None or latest < end:
            found = "is not there" if latest is None else f"ends at offset {latest}"
            raise JobFailed(
                f"{topic}-{partition} {found}, but the archive ends at offset {end}: the topic has lost records. "
                "Restore them from the archive, or archive into another namespace."
            )


def check_tails(
    topic: str, archived: Mapping[int, Tail], found: Mapping[int, tuple[int | None, int]], bounds: Mapping[int, Bounds]
) -> None:
    """Raise Refused if a log has another record at the last archived offset than the archive.

    `found` has the leader epoch and checksum of the record that the log has there. Offsets without a record, such as
    those of transaction markers and deleted records, say nothing.
    """
    for partition, tail in sorted(archived.items()):
        if partition not in found or tail.checksum is None:
            continue
        epoch, checksum = found[partition]
        if checksum != tail.checksum or (None not in (epoch, tail.epoch) and epoch != tail.epoch):
            raise Refused(
                f"{topic}-{partition} has another record at offset {tail.end - 1} than the archive (leader epoch "
                f"{epoch} and checksum {checksum}; the archive has {tail.epoch} and {tail.checksum}): the log lost its "
                f"last records and got new ones, and now ends at {bounds[partition].latest}. Restore the archived "
                "records into another topic to see what was lost, and archive this topic in another namespace from now "
                "on, or roll the table back to a snapshot from before the loss."
            )


def first_of(ranges: list[OffsetRange], offsets_max: int) -> list[OffsetRange]:
    """Shorten all ranges by the same factor, to about `offsets_max` offsets in all, if they have more."""
    total = sum(each.offsets for each in ranges)
    if total <= offsets_max:
        return ranges
    shares = [min(each.offsets, max(1, each.offsets * offsets_max // total)) for each in ranges]
    return [
        OffsetRange(each.partition, each.start, each.start + share) for each, share in zip(ranges, shares, strict=True)
    ]


def overlap(one: OffsetRange, bounds: Bounds) -> OffsetRange:
    """Return the offsets that are in both ranges, or an empty range if there are none."""
    start = max(one.start, bounds.earliest)
    return OffsetRange(one.partition, start, max(start, min(one.end, bounds.latest)))
