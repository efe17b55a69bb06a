"""The folder of an archive: `ledger/00000000.json`, ... and `data/topic_id=/run=/date=/partition=/*.parquet`.

A run writes its data files, syncs them, and then commits by linking one ledger file to its final name: that either is
there as a whole or not at all, and fails where another writer has taken the number. What no entry names does not count,
and the next run removes it.
"""

import fcntl
import os
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.ledger import DataFile, Entry, Generation, Ledger, checked

LEDGER: Final = "ledger"
DATA: Final = "data"
LOCK: Final = "lock"
RESTORES: Final = "restores"
PARTIAL: Final = ".partial"


class ArchiveFolder:
    """One archive on a file system of this machine (a mounted volume, too) that has locks and hard links."""

    def __init__(self, path: str) -> None:
        self.path = Path(path).absolute()
        self.data = self.path / DATA

    @contextmanager
    def restored_by_us(self, name: str, into_id: str) -> Iterator[Path]:
        """The file of a restore's plan, which may not be there yet; the target's id is `into_id`.

        Raises JobFailed where another process restores into that target.
        """
        folder = self.path / RESTORES
        try:
            folder.mkdir(exist_ok=True)
            lock = (folder / f"{into_id}.lock").open("a")
        except OSError as error:
            raise JobFailed(f"archive={self.path}: a restore keeps its plan there: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise JobFailed("another process restores into the same topic; wait until it has ended") from None
            yield folder / f"{name}-into-{into_id}.json"

    @contextmanager
    def written_by_us(self) -> Iterator[None]:
        """Nobody else writes it meanwhile: the kernel frees the lock when this process ends, however that ends.

        Raises JobFailed where another process has it, or the folder cannot be made.
        """
        try:
            for name in (LEDGER, DATA):
                (self.path / name).mkdir(parents=True, exist_ok=True)
            lock = (self.path / LOCK).open("a+")
        except OSError as error:
            raise JobFailed(f"archive={self.path}: cannot be written: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise JobFailed(
                    f"archive={self.path} is being written by {lock.read().strip() or 'another process'}: an archive "
                    "has one writer at a time; wait until that run has ended"
                ) from None
            lock.truncate(0)
            lock.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            lock.flush()
            yield

    def ledger(self) -> Ledger:
        """What is committed. Raises JobFailed where there is no archive, or its ledger cannot be read."""
        folder = self.path / LEDGER
        try:
            names = sorted(each.name for each in folder.iterdir() if each.suffix == ".json")
        except OSError as error:
            raise JobFailed(
                f"archive={self.path}: no archive can be read there: {folder}: {error.strerror}; run `archive` first"
            ) from error
        return checked([_entry(folder / name) for name in names], str(self.path))

    def sweep(self, ledger: Ledger) -> int:
        """Removes what runs that ended early have left; how many runs' folders that was. Only for the writer."""
        named = {Path(file.path).parts[:3] for entry in ledger.entries for file in entry.files}
        left = [run for run in self.path.glob(f"{DATA}/*/*") if run.relative_to(self.path).parts not in named]
        for run in left:
            shutil.rmtree(run, ignore_errors=True)
        for partial in (self.path / LEDGER).glob(f"*{PARTIAL}"):
            partial.unlink()
        return len(left)

    def new_run(self, topic_id: str, number: int) -> Path:
        """A folder, not made yet, for the data files of one commit."""
        return self.data / f"topic_id={topic_id}" / f"run={number:08d}-{uuid.uuid4().hex[:12]}"

    def settled(self, run: Path) -> list[DataFile]:
        """The data files of a run, synced to the disk with their folders."""
        files = sorted(run.rglob("*.parquet"))
        folders = {folder for file in files for folder in file.parents if folder.is_relative_to(self.path)}
        beside = [file.with_name(f".{file.name}.crc") for file in files]  # Hadoop's checksums of a local file system.
        for path in (*files, *filter(Path.exists, beside), *folders):
            _sync(path)
        return [DataFile(str(file.relative_to(self.path)), file.stat().st_size) for file in files]

    def commit(self, entry: Entry) -> None:
        """The entry counts when this returns, also after a power cut. Raises JobFailed where its number is taken."""
        final = self.path / LEDGER / f"{entry.number:08d}.json"
        partial = final.with_suffix(f".{uuid.uuid4().hex[:12]}{PARTIAL}")
        write_synced(partial, msgspec.json.format(msgspec.json.encode(entry), indent=1))
        try:
            os.link(partial, final)
        except FileExistsError:
            raise JobFailed(
                f"archive={self.path}: another writer has committed ledger entry {entry.number} meanwhile; "
                "nothing of this run counts; run it again"
            ) from None
        finally:
            partial.unlink()
        _sync(final.parent)

    def paths(self, generation: Generation) -> list[str]:
        """The data files, each there with its size. Raises JobFailed for the first that is not."""
        for file in generation.files:
            path = self.path / file.path
            size = path.stat().st_size if path.is_file() else None
            if size != file.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise JobFailed(
                    f"archive={self.path}: the data file {file.path} {found}; the ledger wants {file.bytes} bytes. "
                    "Put it back from a backup."
                )
        return [str(self.path / file.path) for file in generation.files]


def replace_synced(path: Path, content: bytes) -> None:
    """The file has this content, or what it had, whatever happens meanwhile."""
    partial = path.with_suffix(PARTIAL)
    write_synced(partial, content)
    partial.replace(path)
    _sync(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """The file is on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _entry(path: Path) -> Entry:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Entry)
    except (OSError, msgspec.DecodeError) as error:
        raise JobFailed(f"the ledger file {path} cannot be read: {error}; put it back from a backup") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
