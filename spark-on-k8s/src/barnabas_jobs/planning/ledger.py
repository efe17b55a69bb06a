"""The ledger of an archive, which names the data files and the offsets that they hold.

The name of a run folder contains the number of the ledger entry that is to commit the folder. Only one run can write
the entry with a given number, so a folder that an interrupted run left can no longer be committed once another run has
written that entry. The next run therefore first writes an empty entry with this number, and then removes the folder. If
the interrupted run is in fact still alive, it cannot commit files that were removed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from barnabas_jobs.planning.errors import JobFailed, Refused
from barnabas_jobs.planning.ranges import OffsetRange

FORMAT: Final = 1
RUN: Final = re.compile(r"data/topic_id=[^/]+/run=(\d{8})-[0-9a-f]{12}")
JOINED_FORMAT: Final = 2
"""The format of ledger entries with `joins`, whose files replace files of earlier entries.

The format differs from FORMAT so that older readers fail instead of reading records twice, from old and new files.
"""


class ArchivedRange(msgspec.Struct, frozen=True, kw_only=True):
    """An archived range of offsets in a partition, and the number of its records."""

    partition: int
    start: int
    end: int
    records: int


class LostRange(msgspec.Struct, frozen=True):
    """A range of offsets that the topic deleted before they were archived, as `fail_on_data_loss=false` allows."""

    partition: int
    start: int
    end: int


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file: its path in the archive and its size."""

    path: str
    bytes: int


def run_of(file: DataFile) -> str:
    """Return the folder of the run that wrote the file: `data/topic_id=ID/run=RUN`."""
    return "/".join(file.path.split("/")[:3])


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One commit.

    `number` counts from 0 without a gap. `topic_id` distinguishes the topic from later topics of the same name.
    `schema` is the schema of the column `json`, and `mismatched` the number of values that do not fit it. If `joins` is
    (first, end), the files of the entry replace the files of the entries `first` to `end` - 1. An entry with neither
    `joins` nor `ranges` is a fence: it occupies a number, so that an interrupted run cannot commit under this number.
    """

    number: int
    topic: str
    topic_id: str
    committed_at_ms: int
    partitions: list[ArchivedRange]
    files: list[DataFile]
    lost: list[LostRange] = []
    schema: str | None = None
    mismatched: int = 0
    topic_partitions: int
    topic_config: dict[str, str] = {}
    joins: tuple[int, int] | None = None
    format: int = FORMAT

    @property
    def ranges(self) -> list[OffsetRange]:
        """The offset ranges of the entry, first the lost ranges, then the archived ranges."""
        lost = [OffsetRange(each.partition, each.start, each.end) for each in self.lost]
        return lost + [OffsetRange(each.partition, each.start, each.end) for each in self.partitions]

    @property
    def run(self) -> str | None:
        """The folder of the data files, or None if the entry has no files."""
        return run_of(self.files[0]) if self.files else None

    @property
    def records(self) -> int:
        """The number of records in the archived ranges."""
        return sum(each.records for each in self.partitions)

    @property
    def left_out(self) -> int:
        """The number of offsets in the archived ranges for which the archive has no record.

        These are the offsets of aborted records, transaction markers and compacted records.
        """
        return sum(each.end - each.start - each.records for each in self.partitions)


class Generation(NamedTuple):
    """The ledger entries of one topic id: all entries, or only those up to a given commit.

    In the second case, `later` has the newer entries, made by `compact`, whose files replace files of `entries`. The
    files of `later` may also hold newer records.
    """

    topic: str
    topic_id: str
    entries: tuple[Entry, ...]
    later: tuple[Entry, ...] = ()

    @property
    def joined(self) -> set[int]:
        """The numbers of the entries whose files were replaced by the files of a newer entry."""
        return {number for entry in (*self.entries, *self.later) if entry.joins for number in range(*entry.joins)}

    @property
    def files(self) -> list[DataFile]:
        """The data files in the order of their ledger entries, without the files that `compact` replaced."""
        joined = self.joined
        kept = (entry for entry in (*self.entries, *self.later) if entry.number not in joined)
        return [file for entry in kept for file in entry.files]

    @property
    def records(self) -> int:
        """The number of archived records in all entries."""
        return sum(entry.records for entry in self.entries)

    @property
    def topic_partitions(self) -> int:
        """The number of partitions that the topic had at the last commit."""
        return self.entries[-1].topic_partitions if self.entries else 0

    @property
    def topic_config(self) -> dict[str, str]:
        """The configs that were set on the topic itself at the last commit."""
        return self.entries[-1].topic_config if self.entries else {}

    def ends(self) -> dict[int, int]:
        """Return by partition the offset after the last one that is archived, or recorded as lost."""
        return {each.partition: each.end for entry in self.entries for each in entry.ranges}

    def spans(self) -> list[OffsetRange]:
        """Return, for each partition, the range from its first archived offset to the offset that `ends` returns."""
        starts: dict[int, int] = {}
        for entry in self.entries:
            for each in entry.partitions:
                starts.setdefault(each.partition, each.start)
        ends = self.ends()
        return [OffsetRange(partition, start, ends[partition]) for partition, start in sorted(starts.items())]

    def records_by_partition(self) -> Mapping[int, int]:
        """Return the number of archived records by partition."""
        counts: dict[int, int] = {}
        for entry in self.entries:
            for each in entry.partitions:
                counts[each.partition] = counts.get(each.partition, 0) + each.records
        return counts


class LedgerSums:
    """The totals of a ledger.

    Runs that add entries keep only these totals, because half a million entries would take too much memory.
    """

    def __init__(self) -> None:
        self.count = 0
        self.topic: str | None = None
        self.last_commit_ms: int | None = None
        self.runs: set[str] = set()
        """The folders of all data files."""
        self._records: dict[str, int] = {}
        self._ends: dict[str, dict[int, int]] = {}

    def add(self, entry: Entry) -> None:
        """Add the record counts, offsets and run folders of the next ledger entry to the totals."""
        self.count += 1
        self.topic = self.topic or entry.topic
        self.last_commit_ms = entry.committed_at_ms if entry.ranges else self.last_commit_ms
        self.runs.update(map(run_of, entry.files))
        self._records[entry.topic_id] = self.records(entry.topic_id) + entry.records
        self._ends.setdefault(entry.topic_id, {}).update({each.partition: each.end for each in entry.ranges})

    def records(self, topic_id: str) -> int:
        """Return the number of archived records of a topic id."""
        return self._records.get(topic_id, 0)

    def ends(self, topic_id: str) -> dict[int, int]:
        """Return by partition the offset after the last one that is archived, or recorded as lost."""
        return dict(self._ends.get(topic_id, {}))


def sums_of(entries: Iterable[Entry]) -> LedgerSums:
    """Return the totals of the ledger entries, which must be sorted by number."""
    sums = LedgerSums()
    for entry in entries:
        sums.add(entry)
    return sums


class Ledger(NamedTuple):
    """The entries of a ledger, sorted by number: all entries, or only those up to some commit.

    `later` has the entries after that commit whose files replace files of `entries`.
    """

    entries: tuple[Entry, ...]
    later: tuple[Entry, ...] = ()

    def first(self, count: int) -> "Ledger":
        """Return the ledger as it was after its first `count` entries."""
        later: list[Entry] = []
        for entry in self.entries[count:]:
            joins = range(*entry.joins) if entry.joins else range(0)
            if joins and (joins.start < count or any(each.number in joins for each in later)):
                later.append(entry)
        return Ledger(self.entries[:count], tuple(later))

    @property
    def topic(self) -> str | None:
        """The topic of the archive, or None if the archive is empty."""
        return self.entries[0].topic if self.entries else None

    def generation(self, topic: str, topic_id: str) -> Generation:
        """Return the ledger entries of a topic id; there may be none."""
        of_id = (tuple(entry for entry in found if entry.topic_id == topic_id) for found in (self.entries, self.later))
        return Generation(topic, topic_id, *of_id)

    def topic_ids(self) -> list[str]:
        """Return the topic ids with archived offsets, in the order of their first commits."""
        return list(dict.fromkeys(entry.topic_id for entry in self.entries if entry.ranges))

    def chosen(self, topic_id: str | None) -> Generation:
        """Return the ledger entries of a topic id; None stands for the topic id that was archived last.

        Raises Refused if there are no archived offsets of the topic id.
        """
        bringing = [entry for entry in self.entries if entry.ranges]
        if not bringing:
            raise Refused("there is no archive, or it has no records; run `archive` first")
        wanted = topic_id or bringing[-1].topic_id
        if wanted not in self.topic_ids():
            raise Refused(f"topic_id={wanted}: the archive has no such id; allowed: {', '.join(self.topic_ids())}")
        return self.generation(self.entries[0].topic, wanted)


def check_topic(ledger: LedgerSums, topic: str, archive: str) -> None:
    """Raise Refused if the archive is that of another topic."""
    if ledger.topic not in (None, topic):
        raise Refused(
            f"archive={archive} is of the topic {ledger.topic!r}, not of {topic!r}: an archive has one topic; "
            "name another folder"
        )


def checked(entries: Iterable[Entry], archive: str) -> Ledger:
    """Check the numbers, formats and ranges of these entries, and return their ledger.

    Raises JobFailed if an entry is missing or has a newer format, or if offset ranges overlap or leave a gap.
    """
    return Ledger(tuple(in_order(entries, archive)))


def in_order(entries: Iterable[Entry], archive: str) -> Iterator[Entry]:
    """Check the entries one by one, and yield each of them.

    Raises JobFailed if an entry is missing or has a newer format, or if offset ranges overlap or leave a gap.
    """
    ends: dict[tuple[str, int], int] = {}
    for number, entry in enumerate(entries):
        wanted = JOINED_FORMAT if entry.joins else FORMAT
        if entry.number != number or entry.format != wanted:
            found = f"the entry number {entry.number} and the format version {entry.format}"
            raise JobFailed(
                f"archive={archive}: ledger entry {number} has {found}, but must have the entry number {number} "
                f"and the format version {wanted}. If a ledger file is missing, restore the file from a "
                "backup. If the format is newer, use a newer version of the jobs."
            )
        for each in entry.ranges:
            before = ends.get((entry.topic_id, each.partition), each.start)
            if each.start != before or each.end < each.start:
                raise JobFailed(
                    f"archive={archive}: ledger entry {number} has partition {each.partition} from offset {each.start} "
                    f"to {each.end}, but the previous entry ends at offset {before}"
                )
            ends[entry.topic_id, each.partition] = each.end
        yield entry


class Leftovers(NamedTuple):
    """The run folders that no ledger entry names.

    `fence` is true if an empty ledger entry must be written before the folders are removed, so that an interrupted run
    can no longer commit its folder.
    """

    runs: list[str]
    fence: bool


def leftovers(ledger: LedgerSums, folders: Iterable[str], archive: str) -> Leftovers:
    """Find, among all run folders of an archive, those that interrupted runs left.

    Raises JobFailed if a folder shows that ledger entries are missing.
    """
    unnamed = (folder for folder in folders if folder not in ledger.runs)
    numbers = {folder: int(found[1]) for folder in unnamed if (found := RUN.fullmatch(folder))}
    following = ledger.count
    for folder, number in numbers.items():
        if number > following:
            raise JobFailed(
                f"archive={archive}: {folder} belongs to entry {number} of the archive's ledger, but the ledger ends "
                f"before entry {following}: the ledger files of the last entries are missing. Restore these files from "
                "a backup, or copy `_entry.json` from the run folders to the ledger. The job removed no files."
            )
    return Leftovers(sorted(numbers), following in numbers.values())
