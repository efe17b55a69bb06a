"""An archive: `ledger/00000000.json`, ... and `data/topic_id=/run=/date=/partition=/*.parquet`.

Each ledger file holds one ledger entry, which names the data files of one commit. Every 1,000 entries are copied into
one more file, a pack, such as `packs/00000000.json`, so that a reader opens fewer files. `compact` copies all entries
into the first pack.

A run writes and syncs its data files, and then commits them by adding the ledger file with the next number. This is
atomic, and fails if another writer has added a ledger file with this number. Readers ignore data files that no ledger
entry names, such as those of an interrupted run. The next run first commits an empty entry with the number that the
interrupted run would use, so that the interrupted run can no longer commit, and then removes those data files.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol, TypeVar

import msgspec

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import (
    DataFile,
    Entry,
    Generation,
    Ledger,
    LedgerSums,
    Leftovers,
    checked,
    in_order,
    leftovers,
    sums_of,
)

LEDGER: Final = "ledger"
PACKS: Final = "packs"
PACKED: Final = 1000
"""The number of ledger entries that are copied into one file, a pack."""
DATA: Final = "data"
LOCK: Final = "lock"
COPY: Final = "_entry.json"
OF_RUN: Final = f"restore the file from a backup, or copy `{COPY}` from {DATA}/*/run=NUMBER-*/ to this file"

Content = TypeVar("Content")


class Store(Protocol):
    """A local folder or a bucket with the files of an archive, or the plans of restores.

    Names are relative to the folder or bucket. Failures raise JobFailed, except that `remove` may leave files behind.
    """

    def url(self, name: str) -> str:
        """Return the URL by which Spark reads and writes the file or folder."""

    def make(self, *folders: str) -> None:
        """Create the folders so that they survive a power cut."""

    def locked(self, name: str, taken: str) -> AbstractContextManager[None]:
        """Hold a lock while the block runs, if the store has locks.

        Raises JobFailed with the text `taken` if another process holds the lock.
        """

    def names(self, folder: str) -> list[str]:
        """Return the sorted names in a folder, or an empty list if the folder does not exist."""

    def read(self, name: str) -> bytes | None:
        """Return the content of the file, or None if there is no such file."""

    def add(self, name: str, content: bytes) -> bool:
        """Add a file atomically and durably; return False if the name is taken."""

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file atomically: after a crash it has the old content or the new one."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """Return the size in bytes of each file below the folder."""

    def sync(self, files: Iterable[str]) -> None:
        """Make the files survive a power cut."""

    def remove(self, folder: str) -> None:
        """Remove the folder recursively, except for files that cannot be removed."""

    def sweep(self, folder: str) -> None:
        """Remove the partial files that interrupted writes left in the folder."""


class ArchiveFolder:
    """An archive of a topic's records in a local folder or in a bucket."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.data = store.url(DATA)

    def __str__(self) -> str:
        return str(self.store)

    @contextmanager
    def written_by_us(self) -> Iterator[None]:
        """Create the folders of the archive, and lock the archive while the block runs, if the store has locks.

        Raises JobFailed if another writer holds the lock.
        """
        self.store.make(LEDGER, PACKS, DATA)
        with self.store.locked(LOCK, "is writing this archive, which can have only one writer at a time"):
            yield

    def ledger(self) -> Ledger:
        """Return all ledger entries. Raises JobFailed if a ledger entry is missing, wrong or cannot be read."""
        return checked(self._entries(), str(self))

    def _entries(self, first: int = 0) -> Iterator[Entry]:
        """Yield the ledger entries from the number `first` on, in order.

        Read entries from a pack, which is a file with many entries, or else from the ledger file of each entry.
        """
        packs = {name for name in self.store.names(PACKS) if name.endswith(".json")}
        files = {name for name in self.store.names(LEDGER) if name.endswith(".json")}
        for name in sorted(packs | files):
            if name < _file(first):
                continue  # The entries were already read from a pack, which is a file with copies of many entries.
            if name in packs:
                found = self._read(
                    f"{PACKS}/{name}", list[Entry], "remove the file, which is only a copy of ledger files"
                )
            else:
                found = [self._read(f"{LEDGER}/{name}", Entry, OF_RUN)]
            first += len(found)
            yield from found

    def _read(self, name: str, kind: type[Content], hint: str) -> Content:
        try:
            return msgspec.json.decode(self.store.read(name) or b"", type=kind)
        except msgspec.DecodeError as error:
            raise JobFailed(f"archive={self}: the file {name} cannot be read: {error}; {hint}") from error

    def survey(self) -> tuple[Ledger, Leftovers]:
        """Return all ledger entries, and the run folders that interrupted runs left.

        Raises JobFailed if ledger entries are missing. The folders are listed before the ledger is read. Therefore a
        folder that another run commits meanwhile does not count as left by an interrupted run.
        """
        folders = self._run_folders()
        ledger = self.ledger()
        return ledger, self._left(folders, sums_of(ledger.entries))

    def survey_sums(self) -> tuple[LedgerSums, Leftovers]:
        """Return the totals of the ledger entries, and the run folders that interrupted runs left.

        The entries themselves are not kept, to save memory. Raises JobFailed if ledger entries are missing.
        """
        folders = self._run_folders()
        sums = sums_of(in_order(self._entries(), str(self)))
        return sums, self._left(folders, sums)

    def _run_folders(self) -> list[str]:
        topics = [f"{DATA}/{name}" for name in self.store.names(DATA)]
        return [f"{topic}/{run}" for topic in topics for run in self.store.names(topic)]

    def runs_of(self, topic_id: str) -> list[str]:
        """Return the folders that runs wrote for the topic id, each with the data files of one commit."""
        return [f"{_of_topic(topic_id)}/{run}" for run in self.store.names(_of_topic(topic_id))]

    def _left(self, folders: Iterable[str], ledger: LedgerSums) -> Leftovers:
        found = leftovers(ledger, folders, str(self))
        for run in found.runs:
            if self.store.read(f"{run}/{COPY}") is not None and not self._names(run, ledger):
                raise JobFailed(
                    f"archive={self}: {run} was committed, but the ledger of the archive lacks its entry. "
                    f"Restore the ledger file from a backup, or copy {run}/{COPY} to the folder {LEDGER}; name the "
                    "copy by its `number` in eight digits, such as 00000012.json. The job removed no files."
                )
        return found

    def _names(self, run: str, ledger: LedgerSums) -> bool:
        """True if a ledger entry names the run folder, and was committed after `ledger` was read."""
        return any(entry.run == run for entry in self._entries(ledger.count))

    def sweep(self, runs: Iterable[str], entries: int) -> None:
        """Remove the folders of interrupted `runs` and all partly written files, and write the missing packs.

        A pack is one file with copies of 1,000 ledger entries; `entries` is the number of ledger entries. Call this
        function in a `written_by_us` block. If `Leftovers.fence` is true, first commit a ledger entry without files.
        """
        for run in runs:
            self.store.remove(run)
        for folder in (LEDGER, PACKS):
            self.store.sweep(folder)
        there = set(self.store.names(PACKS))
        for first in range(0, entries - PACKED + 1, PACKED):
            if _file(first) not in there:
                self._pack(first)

    def _pack(self, first: int) -> None:
        """Copy 1,000 ledger entries, from the number `first` on, into one file, a pack.

        A failure is ignored, because without the pack `_entries` reads the ledger files.
        """
        with suppress(JobFailed):
            contents = [self.store.read(f"{LEDGER}/{_file(number)}") for number in range(first, first + PACKED)]
            if all(contents):
                self.store.add(f"{PACKS}/{_file(first)}", b"[%b]" % b",".join(filter(None, contents)))

    def pack_all(self, entries: Sequence[Entry]) -> None:
        """Replace the archive's first pack by one with all ledger entries, so that readers open only this file.

        A pack is a file with copies of ledger entries.
        """
        self.store.replace(f"{PACKS}/{_file(0)}", msgspec.json.encode(entries))

    def new_run(self, topic_id: str, number: int) -> str:
        """Return the name of a new run folder for the data files of one commit."""
        return f"{_of_topic(topic_id)}/run={number:08d}-{uuid.uuid4().hex[:12]}"

    def synced(self, run: str) -> list[DataFile]:
        """Sync the data files in a run folder and the folders above them, and return the data files."""
        sizes = self.store.sizes(run)
        # Hadoop checks a data file against the checksums in its .crc file, so sync both.
        self.store.sync(name for name in sizes if name.endswith((".parquet", ".parquet.crc")))
        return [DataFile(name, size) for name, size in sizes.items() if name.endswith(".parquet")]

    def commit(self, entry: Entry) -> None:
        """Add the entry to the ledger, and a copy of the entry to the folder of its data files, both durably.

        After every 1,000 entries, also copy these entries into one file, a pack. Raises JobFailed if another writer has
        added an entry with this number.
        """
        content = msgspec.json.format(msgspec.json.encode(entry), indent=1)
        if not self.store.add(f"{LEDGER}/{_file(entry.number)}", content):
            raise JobFailed(
                f"archive={self}: another writer has already committed the ledger entry {entry.number}, so "
                "this commit does not count; run the job again"
            )
        if entry.run is not None:
            self.store.replace(f"{entry.run}/{COPY}", content)
        if (entry.number + 1) % PACKED == 0:
            self._pack(entry.number + 1 - PACKED)

    def paths(self, generation: Generation) -> list[str]:
        """Return the URLs of the data files.

        Raises JobFailed if a file is missing or has another size than in the ledger.
        """
        # One recursive listing is faster than a listing of each of up to 40,000 run folders.
        sizes = self.store.sizes(_of_topic(generation.topic_id))
        for file in generation.files:
            size = sizes.get(file.path)
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise JobFailed(
                    f"archive={self}: the data file {file.path} {found}; the ledger expects {file.bytes} bytes. "
                    "Restore the file from a backup."
                )
        return [self.store.url(file.path) for file in generation.files]


def _of_topic(topic_id: str) -> str:
    return f"{DATA}/topic_id={topic_id}"


def _file(number: int) -> str:
    """Return the file name of the ledger entry with this number, or of the pack whose first entry has this number."""
    return f"{number:08d}.json"
