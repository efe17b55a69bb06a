"""An archive: `ledger/00000000.json`, ... and `data/topic_id=/run=/date=/partition=/*.parquet`.

`packs/00000000.json` is a copy of the first thousand ledger files, and so on: a reader asks for one in their place.
After `compact` the first pack has all entries that existed then.

A run writes its data files, makes them safe, and then commits by adding one ledger file: that either is there as a
whole or not at all, and fails where another writer has taken the number. Files that no entry names do not count, and
the next run removes them, once it has taken the number away from their writer.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final, Protocol, TypeVar

import msgspec

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import DataFile, Entry, Generation, Ledger, LedgerSums, checked, in_order, sums_of
from barnabas_jobs.planning.leftovers import Leftovers, leftovers

LEDGER: Final = "ledger"
PACKS: Final = "packs"
PACKED: Final = 1000
"""The number of ledger entries in a pack."""
DATA: Final = "data"
LOCK: Final = "lock"
COPY: Final = "_entry.json"
OF_RUN: Final = f"put it back from a backup, or copy `{COPY}` of the run with its number in {DATA}/*/ to its place"

Content = TypeVar("Content")


class Store(Protocol):
    """The place of an archive's files. Paths are relative to it; each method raises JobFailed if it fails."""

    def url(self, name: str) -> str:
        """Return the name by which Spark reads and writes it."""

    def make(self, *folders: str) -> None:
        """Make the folders, which exist when this returns."""

    def locked(self, name: str, taken: str) -> AbstractContextManager[None]:
        """Refuses a second process with what is `taken`, where the store has locks."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """The content; None where it is not there."""

    def add(self, name: str, content: bytes) -> bool:
        """Add a file, whole and safe when this returns; False if the name is taken."""

    def replace(self, name: str, content: bytes) -> None:
        """Replace the content; after a crash the file has the old content or the new one."""

    def sizes(self, folder: str) -> Mapping[str, int]:
        """The files in it and below, with their bytes."""

    def sync(self, files: Iterable[str]) -> None:
        """Make the files survive a power cut."""

    def remove(self, folder: str) -> None:
        """Remove the folder recursively, and leave what cannot be removed."""

    def sweep(self, folder: str) -> None:
        """Remove what was left half done in the folder."""


class ArchiveFolder:
    """One archive, in its store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.data = store.url(DATA)

    def __str__(self) -> str:
        return str(self.store)

    @contextmanager
    def written_by_us(self) -> Iterator[None]:
        """Keep other writers out of the archive inside, if its store has locks."""
        self.store.make(LEDGER, PACKS, DATA)
        with self.store.locked(LOCK, "writes it, and an archive has one writer at a time"):
            yield

    def ledger(self) -> Ledger:
        """Return the committed entries, which may be none. Raises JobFailed if they cannot be read."""
        return checked(self._entries(), str(self))

    def _entries(self, first: int = 0) -> Iterator[Entry]:
        """Yield the entries from this number on, in order: of packs, and of ledger files that no pack has."""
        packs = {name for name in self.store.names(PACKS) if name.endswith(".json")}
        files = {name for name in self.store.names(LEDGER) if name.endswith(".json")}
        for name in sorted(packs | files):
            if name < _file(first):
                continue  # The previous pack has a copy.
            if name in packs:
                found = self._read(f"{PACKS}/{name}", list[Entry], "remove it: it is a copy of ledger files")
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
        """Return the committed entries, and what runs that ended early have left. Raises JobFailed if entries are lost.

        Folders are listed before the ledger is read: then it knows what another writer has committed meanwhile.
        """
        folders = self._run_folders()
        ledger = self.ledger()
        return ledger, self._left(folders, sums_of(ledger.entries))

    def survey_sums(self) -> tuple[LedgerSums, Leftovers]:
        """Return what `survey` does, without the memory that all entries take."""
        folders = self._run_folders()
        sums = sums_of(in_order(self._entries(), str(self)))
        return sums, self._left(folders, sums)

    def _run_folders(self) -> list[str]:
        topics = [f"{DATA}/{name}" for name in self.store.names(DATA)]
        return [f"{topic}/{run}" for topic in topics for run in self.store.names(topic)]

    def runs_of(self, topic_id: str) -> list[str]:
        """The folders of runs that are there."""
        return [f"{_of_topic(topic_id)}/{run}" for run in self.store.names(_of_topic(topic_id))]

    def _left(self, folders: Iterable[str], ledger: LedgerSums) -> Leftovers:
        found = leftovers(ledger, folders, str(self))
        for run in found.runs:
            if self.store.read(f"{run}/{COPY}") is not None and not self._names(run, ledger):
                raise JobFailed(
                    f"archive={self}: the ledger has no entry for {run}, which was committed: its file is missing. Put "
                    f"it back from a backup, or copy {run}/{COPY} to {LEDGER}; nothing was removed."
                )
        return found

    def _names(self, run: str, ledger: LedgerSums) -> bool:
        """True if an entry after these names the run: it was committed a moment ago."""
        return any(entry.run == run for entry in self._entries(ledger.count))

    def sweep(self, runs: Iterable[str], entries: int) -> None:
        """Remove these runs, and files that were left half done, and make packs that are missing.

        Only for the writer, once a fence is committed.
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
        """Make a pack of these entries; another writer adds the same.

        Without it a reader reads the ledger files, so a missing pack is no failure.
        """
        with suppress(JobFailed):
            contents = [self.store.read(f"{LEDGER}/{_file(number)}") for number in range(first, first + PACKED)]
            if all(contents):
                self.store.add(f"{PACKS}/{_file(first)}", b"[%b]" % b",".join(filter(None, contents)))

    def pack_all(self, entries: Sequence[Entry]) -> None:
        """Make one pack of all entries, so that a reader asks for one file. A pack is a copy: it may be replaced."""
        self.store.replace(f"{PACKS}/{_file(0)}", msgspec.json.encode(entries))

    def new_run(self, topic_id: str, number: int) -> str:
        """A folder, not made yet, for the data files of one commit."""
        return f"{_of_topic(topic_id)}/run={number:08d}-{uuid.uuid4().hex[:12]}"

    def synced(self, run: str) -> list[DataFile]:
        """The data files of a run, safe with their folders."""
        sizes = self.store.sizes(run)
        self.store.sync(name for name in sizes if name.endswith((".parquet", ".parquet.crc")))  # Hadoop's checksums.
        return [DataFile(name, size) for name, size in sizes.items() if name.endswith(".parquet")]

    def commit(self, entry: Entry) -> None:
        """The entry counts when this returns, also after a power cut. Raises JobFailed where its number is taken."""
        content = msgspec.json.format(msgspec.json.encode(entry), indent=1)
        if not self.store.add(f"{LEDGER}/{_file(entry.number)}", content):
            raise JobFailed(
                f"archive={self}: another writer has committed ledger entry {entry.number} meanwhile; "
                "nothing of this run counts; run it again"
            )
        if entry.run is not None:
            self.store.replace(f"{entry.run}/{COPY}", content)
        if (entry.number + 1) % PACKED == 0:
            self._pack(entry.number + 1 - PACKED)

    def paths(self, generation: Generation) -> list[str]:
        """The data files, each there with its size. Raises JobFailed for the first that is not."""
        sizes = self.store.sizes(_of_topic(generation.topic_id))  # One listing: there may be 40,000 runs.
        for file in generation.files:
            size = sizes.get(file.path)
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise JobFailed(
                    f"archive={self}: the data file {file.path} {found}; the ledger wants {file.bytes} bytes. "
                    "Put it back from a backup."
                )
        return [self.store.url(file.path) for file in generation.files]


def _of_topic(topic_id: str) -> str:
    return f"{DATA}/topic_id={topic_id}"


def _file(number: int) -> str:
    """Return the file name of a ledger entry, or of the pack that begins with it."""
    return f"{number:08d}.json"
