"""The facts that an archive's tables have beside the records: commits, ranges of offsets, and offsets of groups.

Each snapshot of a data table that our jobs commit has properties whose names begin with `barnabas.`. They hold the end
of the archive in each partition, so the newest snapshot is all that a run needs to continue. `Head` reads and writes
these properties.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_jobs.planning.errors import JobFailed

PREFIX: Final = "barnabas."
CLUSTER_ID: Final = f"{PREFIX}cluster-id"
TOPIC_ID: Final = f"{PREFIX}topic-id"
TOPIC: Final = f"{PREFIX}topic"
SCHEMA: Final = f"{PREFIX}schema"
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
