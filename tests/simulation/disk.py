"""A disk in memory: what is synced survives the loss of the machine, what is written survives that of the process.

A machine that loses power keeps of each file what was synced and any beginning of what was written after that, its
last page perhaps torn. Names and small files written atomically are there or are not, as a whole.
"""

import posixpath
from collections.abc import Callable
from random import Random
from typing import Final
from weakref import WeakValueDictionary

from barnabas_broker.storage.files import DiskUsage, FileEntry, LogFile

TOTAL_BYTES: Final = 1 << 34
PAGE_BYTES: Final = 512
EIO: Final = 5
ENOSPC: Final = 28
ENOTEMPTY: Final = 39


class SimulatedFile:
    """One file's bytes; open files stay usable after their name is gone."""

    __slots__ = ("__weakref__", "data", "disk", "durable", "modified_ns")

    def __init__(self, disk: "SimulatedDisk") -> None:
        self.disk = disk
        self.data = bytearray()
        self.durable = b""
        """What a loss of power leaves at least."""
        self.modified_ns = disk.now_ns()

    def fileno(self) -> int:
        raise AssertionError("nobody sends from a simulated disk by sendfile")

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        if self.disk.is_broken:
            self.data[position:] = data[: int(len(data) * self.disk.torn_share)]
        self.disk.before_write(len(data))
        assert position == len(self.data), "an append goes to the end"
        self.data += data
        self.modified_ns = self.disk.now_ns()

    def read_at(self, position: int, length: int) -> bytes:
        self.disk.before_read()
        return bytes(self.data[position : position + length])

    def rewrite(self, position: int) -> None:
        self.disk.before_write(0)
        assert position <= len(self.data)

    def truncate(self, length: int) -> None:
        self.disk.before_write(0)
        del self.data[length:]
        self.durable = self.durable[:length]

    def sync(self) -> None:
        self.disk.before_write(0)
        self.durable = bytes(self.data)

    def size_bytes(self) -> int:
        return len(self.data)

    def lose_power(self, random: Random) -> None:
        """Any beginning of what was not synced is left."""
        durable, data = self.durable, self.data
        if not data.startswith(durable):
            data = bytearray(durable)
        kept = random.randint(len(durable), len(data)) if random.random() < 0.7 else len(durable)
        torn = data[:kept]
        if kept > len(durable) and random.random() < 0.3:
            begin = max(len(durable), kept - PAGE_BYTES)
            torn[begin:kept] = bytes(kept - begin)
        self.data, self.durable = torn, bytes(torn)


class SimulatedDisk:
    """A FileSystem. While it `is_broken` nothing can be read or written, and an append leaves its beginning behind."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.is_broken = False
        self.torn_share = 0.0
        """How much of an append that fails is written all the same."""
        self.is_full = False
        self._files: dict[str, SimulatedFile] = {}
        self._dirs: set[str] = {"/"}
        self._locks: WeakValueDictionary[str, SimulatedFile] = WeakValueDictionary()

    def before_write(self, size_bytes: int) -> None:
        if self.is_broken:
            raise OSError(EIO, "the simulated disk is broken")
        if self.is_full and size_bytes > 0:
            raise OSError(ENOSPC, "the simulated disk is full")

    def before_read(self) -> None:
        if self.is_broken:
            raise OSError(EIO, "the simulated disk is broken")

    def open_file(self, path: str) -> LogFile:
        self.before_read()
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = SimulatedFile(self)
        return file

    def open_existing(self, path: str) -> LogFile:
        self.before_read()
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def read(self, path: str) -> bytes:
        return self.open_existing(path).read_at(0, 1 << 30)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.before_write(len(data))
        file = SimulatedFile(self)
        file.data = bytearray(data)
        previous = self._files.get(path)
        file.durable = bytes(data) if sync or previous is None else previous.durable
        self._files[path] = file

    def scan(self, path: str) -> list[FileEntry]:
        self.before_read()
        if path not in self._dirs:
            raise FileNotFoundError(path)
        begins = path.rstrip("/") + "/"
        below = len(begins)
        dirs = [
            FileEntry(each[below:], True, 0, 0)
            for each in self._dirs
            if each.startswith(begins) and each != begins and "/" not in each[below:]
        ]
        files = [
            FileEntry(name[below:], False, len(file.data), file.modified_ns)
            for name, file in self._files.items()
            if name.startswith(begins) and "/" not in name[below:]
        ]
        return sorted(dirs + files)

    def exists(self, path: str) -> bool:
        self.before_read()
        return path in self._files or path in self._dirs

    def make_dir(self, path: str) -> None:
        self.before_write(0)
        while path not in self._dirs:
            self._dirs.add(path)
            path = posixpath.dirname(path)

    def rename(self, old: str, new: str) -> None:
        self.before_write(0)
        if old in self._files:
            self._files[new] = self._files.pop(old)
            return
        if old not in self._dirs:
            raise FileNotFoundError(old)
        if any(_is_below(each, new) and each != new for each in (*self._files, *self._dirs)):
            raise OSError(ENOTEMPTY, "there is such a directory, and it is not empty")
        self._dirs = {_moved(each, old, new) for each in self._dirs}
        self._files = {_moved(each, old, new): file for each, file in self._files.items()}

    def remove(self, path: str) -> None:
        self.before_write(0)
        self._files = {each: file for each, file in self._files.items() if not _is_below(each, path)}
        self._dirs = {each for each in self._dirs if not _is_below(each, path)}

    def modified_ms(self, path: str) -> int:
        return self._files[path].modified_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._files[path].modified_ns = modified_ms * 1_000_000

    def sync_dir(self, path: str) -> None:
        self.before_write(0)

    def usage(self, path: str) -> DiskUsage:
        self.before_read()
        return DiskUsage(TOTAL_BYTES, 0 if self.is_full else TOTAL_BYTES)

    def lock(self, path: str) -> LogFile:
        self.open_file(path)
        if path in self._locks:
            raise BlockingIOError(path)
        lock = self._locks[path] = SimulatedFile(self)
        return lock

    def process_ends(self) -> None:
        """However it ends: its locks are gone."""
        self._locks.clear()

    def lose_power(self, random: Random) -> None:
        """What was not synced is gone, with the machine or with the connection to the disk."""
        for file in self._files.values():
            file.lose_power(random)


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if _is_below(path, old) else path


def _is_below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(parent + "/")
