"""The facts that an archive's tables have beside the records: commits, ranges of offsets, and offsets of groups.

Each snapshot of a data table that our jobs commit has properties whose names begin with `barnabas.`. They hold the end
of the archive in each partition, so the newest snapshot is all that a run needs to continue. `Head` reads and writes
these properties.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_jobs.planning.errors import JobFailed, Refused

PREFIX: Final = "barnabas."
CLUSTER_ID: Final = f"{PREFIX}cluster-id"
TOPIC_ID: Final = f"{PREFIX}topic-id"
TOPIC: Final = f"{PREFIX}topic"
COMMIT: Final = f"{PREFIX}commit"
RUN: Final = f"{PREFIX}run"
OFFSETS: Final = f"{PREFIX}offsets"
PARTITIONS: Final = f"{PREFIX}partitions"
CONFIG: Final = f"{PREFIX}config"
FENCE: Final = f"{PREFIX}fence"
TIME: Final = f"{PREFIX}committed-at-ms"


class PartitionRange(msgspec.Struct, frozen=True):
    """The offsets of one partition in one commit, from `start` (inclusive) to `end` (exclusive).

    `epoch` is the leader epoch of the record at `end` - 1, and `checksum` the checksum of that record; both are None if
    there is no such record. `lost` is true for a range that the topic deleted before it was archived.
    """

    partition: int
    start: int
    end: int
    epoch: int | None
    checksum: int | None
    records: int
    lost: bool = False

    @property
    def left_out(self) -> int:
        """The number of offsets without a record, such as those of transaction markers and compacted records."""
        return 0 if self.lost else self.end - self.start - self.records


class GroupOffset(NamedTuple):
    """The committed offset of a consumer group in a partition of the archived topic."""

    group: str
    partition: int
    offset: int


class Commit(msgspec.Struct, frozen=True):
    """One commit of an archive; `number` counts from 0, and `run` names the folder of its data files.

    There is a range for each partition of the topic, also for those without a new record.
    """

    number: int
    run: str
    committed_at_ms: int
    ranges: tuple[PartitionRange, ...]
    groups: tuple[GroupOffset, ...] = ()

    @property
    def records(self) -> int:
        """The number of records in all ranges."""
        return sum(each.records for each in self.ranges)


class ArchivedFile(NamedTuple):
    """A data file: its URL for Spark, its size, its number of records, and the bounds (inclusive) of two columns.

    The bounds are None if the file has no statistics, as another engine may write it.
    """

    path: str
    bytes: int
    records: int
    partition_min: int | None
    partition_max: int | None
    offset_min: int | None
    offset_max: int | None


class Tail(NamedTuple):
    """The last range of a partition in the archive, with the leader epoch and checksum of the record at `end` - 1."""

    start: int
    end: int
    epoch: int | None = None
    checksum: int | None = None


class Identity(NamedTuple):
    """The topic that a table archives: a topic that is created again has another `topic_id`."""

    topic: str
    topic_id: str
    cluster_id: str


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The newest commit of a data table, with the end of each partition.

    A fence is a commit without records or ranges, after which no earlier run can commit.
    """

    number: int
    run: str
    committed_at_ms: int
    tails: dict[int, Tail]
    topic_partitions: int
    topic_config: dict[str, str] = {}
    fence: bool = False

    @property
    def ends(self) -> dict[int, int]:
        """The offset after the last archived or lost one, by partition."""
        return {partition: tail.end for partition, tail in self.tails.items()}

    def properties(self, identity: Identity) -> dict[str, str]:
        """Return the properties of the snapshot."""
        return {
            CLUSTER_ID: identity.cluster_id,
            TOPIC_ID: identity.topic_id,
            COMMIT: str(self.number),
            RUN: self.run,
            TIME: str(self.committed_at_ms),
            OFFSETS: msgspec.json.encode(self.tails).decode(),
            PARTITIONS: str(self.topic_partitions),
            CONFIG: msgspec.json.encode(self.topic_config).decode(),
            **({FENCE: "true"} if self.fence else {}),
        }


def head_of(properties: Mapping[str, str], table: str) -> Head | None:
    """Return the commit in the properties of a snapshot, or None if another program committed the snapshot.

    Raises JobFailed if the properties are damaged.
    """
    if COMMIT not in properties:
        return None
    try:
        return Head(
            number=int(properties[COMMIT]),
            run=properties[RUN],
            committed_at_ms=int(properties[TIME]),
            tails=msgspec.json.decode(properties[OFFSETS], type=dict[int, Tail]),
            topic_partitions=int(properties[PARTITIONS]),
            topic_config=msgspec.json.decode(properties[CONFIG], type=dict[str, str]),
            fence=FENCE in properties,
        )
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        raise JobFailed(
            f"table={table}: the properties {PREFIX}* of a snapshot are damaged: {error!r}. Roll the table back to an "
            "earlier snapshot; the next run archives again from there."
        ) from error


def carried(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that a snapshot with the same records, such as one of `compact`, takes over."""
    return {name: value for name, value in properties.items() if name.startswith(PREFIX)}


def tails_after(before: Mapping[int, Tail], ranges: Iterable[PartitionRange]) -> dict[int, Tail]:
    """Return the end of each partition after a commit of `ranges`; partitions without a range keep their end."""
    tails = {each: tail._replace(start=tail.end) for each, tail in before.items()}
    for each in ranges:
        tails[each.partition] = Tail(each.start, each.end, each.epoch, each.checksum)
    return tails


def new_run(number: int, chance: str) -> str:
    """Return the name of the folder for the data files of the commit `number`; `chance` makes the name unique."""
    return f"{number:08d}-{chance}"


def number_of(run: str) -> int | None:
    """Return the number of the commit that was to commit the folder, or None if no run of ours made the folder."""
    number, _, chance = run.partition("-")
    return int(number) if number.isdecimal() and chance else None


def left_over(head: Head | None, folders: Iterable[str], named: Iterable[str]) -> list[str]:
    """Return the runs that have a folder, that no snapshot names, and that might still commit or were fenced.

    Earlier ones can commit no more, and `compact` removes them.
    """
    known, first = set(named), head.number if head else 0
    numbers: list[tuple[str, Any]] = [(run, number_of(run)) for run in folders if run not in known]
    return sorted(run for run, number in numbers if number is not None and number >= first)


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


class LostRange(msgspec.Struct, frozen=True):
    """A range of offsets that the topic deleted before they were archived, as `fail_on_data_loss=false` allows."""

    partition: int
    start: int
    end: int


class Committed:
    """The end of an archive, and the totals of what one run has committed.

    For each partition, `ends` has the offset after the last archived or lost one. `archived_records` counts the records
    of the table, also those of earlier runs. Until the first commit of the run, `last_commit_ms` is the time of the
    last commit of an earlier run.
    """

    def __init__(self, head: Head | None, archived_records: int = 0) -> None:
        self.ends = head.ends if head else {}
        self.archived_records = archived_records
        self.last_commit_ms = head.committed_at_ms if head else None
        self.commits = 0
        self.records = 0
        self.left_out = 0
        self.bytes = 0
        self.mismatched = 0
        self.lost: list[LostRange] = []

    def add(self, commit: Commit, size: int, mismatched: int) -> None:
        """Add a commit; `size` is the size of its data files in bytes."""
        self.ends.update({each.partition: each.end for each in commit.ranges})
        self.archived_records += commit.records
        self.last_commit_ms = commit.committed_at_ms
        self.commits += 1
        self.records += commit.records
        self.left_out += sum(each.left_out for each in commit.ranges)
        self.bytes += size
        self.mismatched += mismatched
        self.lost += [LostRange(each.partition, each.start, each.end) for each in commit.ranges if each.lost]
