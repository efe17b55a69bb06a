"""A disk in memory: synced bytes survive the loss of the machine, written bytes survive that of the process.

A machine that loses power keeps of each file what was synced and any beginning of what was written after that, its
last page perhaps torn; a cut that was not synced may not have happened. Of each directory it keeps the names that were
synced, and any beginning of the changes after that: new files, renames, removals. Nothing binds two directories.
"""

import posixpath
from collections.abc import Callable
from random import Random
from typing import Final
from weakref import WeakValueDictionary

from barnabas_broker.storage.disk.files import DiskUsage, FileEntry, LogFile
from barnabas_broker.storage.errors import SyncFailed

TOTAL_BYTES: Final = 1 << 34
PAGE_BYTES: Final = 512
EIO: Final = 5
ENOSPC: Final = 28
ENOTEMPTY: Final = 39


class SimulatedFile:
    """The bytes of one file; open files stay usable after their name is gone."""

    __slots__ = ("__weakref__", "cut_at", "data", "disk", "durable", "lost", "modified_ns")

    def __init__(self, disk: "SimulatedDisk", data: bytes = b"") -> None:
        self.disk = disk
        self.data = bytearray(data)
        self.durable = b""
        """The bytes that a loss of power leaves at least."""
        self.cut_at: int | None = None
        """The offset at which the file was cut since its last sync: a power cut may bring the synced bytes back."""
        self.lost: tuple[int, int] | None = None
        """The bytes that count as written since a sync failed: the next sync leaves them out."""
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
        if self.lost is not None:
            start, end = self.lost
            self.lost = (start, min(end, position)) if start < position else None

    def truncate(self, length: int) -> None:
        self.disk.before_write(0)
        if length < len(self.durable):
            self.cut_at = length if self.cut_at is None else min(length, self.cut_at)
        if self.lost is not None and length < self.lost[1]:
            self.lost = (self.lost[0], length) if self.lost[0] < length else None
        del self.data[length:]

    def sync(self) -> None:
        self.disk.before_write(0)
        try:
            self.disk.fail_sync()
        except SyncFailed:
            self._lose_pages()
            raise
        written = self.data
        if self.lost is not None:
            start, end = self.lost
            written = written[:start] + bytes(end - start) + written[end:]
        self.durable, self.cut_at = bytes(written), None

    def _lose_pages(self) -> None:
        start = len(self.durable) if self.cut_at is None else self.cut_at
        if self.lost is not None:
            start = min(start, self.lost[0])
        self.lost = (start, len(self.data)) if start < len(self.data) else None

    def size_bytes(self) -> int:
        return len(self.data)

    def lose_power(self, random: Random) -> None:
        """Lose power: any beginning of what was not synced is left."""
        durable, data = self.durable, self.data
        if self.cut_at is not None:
            durable = durable if random.random() < 0.5 else durable[: self.cut_at]
        if self.lost is not None or not data.startswith(durable):
            data = bytearray(durable)
        kept = random.randint(len(durable), len(data)) if random.random() < 0.7 else len(durable)
        torn = data[:kept]
        if kept > len(durable) and random.random() < 0.3:
            begin = max(len(durable), kept - PAGE_BYTES)
            torn[begin:kept] = bytes(kept - begin)
        self.data, self.durable, self.cut_at, self.lost = torn, bytes(torn), None, None


class SimulatedDirectory:
    """A directory of names. A change has a name that goes, one that comes and its node; a rename has both names."""

    __slots__ = ("durable", "names", "unsynced")

    def __init__(self) -> None:
        self.names: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.unsynced: list[tuple[str | None, str | None, Node | None]] = []

    def change(self, old: str | None, new: str | None, node: "Node | None") -> None:
        """Change a name now; the change is on the disk when the directory is synced."""
        _apply(self.names, old, new, node)
        self.unsynced.append((old, new, node))

    def sync(self) -> None:
        """Write all changes to the disk."""
        self.durable, self.unsynced = dict(self.names), []

    def lose_power(self, random: Random) -> None:
        """Lose power: a beginning of the changes is left."""
        kept = random.randint(0, len(self.unsynced)) if self.unsynced else 0
        for change in self.unsynced[:kept]:
            _apply(self.durable, *change)
        self.names, self.unsynced = dict(self.durable), []
        for _, node in sorted(self.names.items()):
            node.lose_power(random)


Node = SimulatedFile | SimulatedDirectory


def _apply(names: dict[str, Node], old: str | None, new: str | None, node: Node | None) -> None:
    if old is not None:
        names.pop(old, None)
    if new is not None and node is not None:
        names[new] = node


class SimulatedDisk:
    """A FileSystem. While it `is_broken`, reads and writes fail, and an append leaves its beginning behind."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.is_broken = False
        self.torn_share = 0.0
        """The share of a failing append that is written all the same."""
        self.is_full = False
        self.sync_error: int | None = None
        """The error of the next sync of a file; the one after it succeeds."""
        self._root = SimulatedDirectory()
        self._locks: WeakValueDictionary[str, SimulatedFile] = WeakValueDictionary()

    def before_write(self, size_bytes: int) -> None:
        if self.is_broken:
            raise OSError(EIO, "the simulated disk is broken")
        if self.is_full and size_bytes > 0:
            raise OSError(ENOSPC, "the simulated disk is full")

    def before_read(self) -> None:
        if self.is_broken:
            raise OSError(EIO, "the simulated disk is broken")

    def fail_sync(self) -> None:
        if self.sync_error is not None:
            error, self.sync_error = self.sync_error, None
            raise SyncFailed(OSError(error, "a sync of the simulated disk fails"))

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in path.split("/")[1:]:
            found = node.names.get(name) if isinstance(node, SimulatedDirectory) else None
            if found is None:
                return None
            node = found
        return node

    def _parent(self, path: str) -> tuple[SimulatedDirectory, str]:
        parent, name = posixpath.split(path)
        node = self._root if parent == "/" else self._find(parent)
        if not isinstance(node, SimulatedDirectory):
            raise FileNotFoundError(path)
        return node, name

    def open_file(self, path: str) -> LogFile:
        self.before_read()
        parent, name = self._parent(path)
        node = parent.names.get(name)
        if node is None:
            node = SimulatedFile(self)
            parent.change(None, name, node)
        assert isinstance(node, SimulatedFile), path
        return node

    def open_existing(self, path: str) -> LogFile:
        self.before_read()
        node = self._find(path)
        if not isinstance(node, SimulatedFile):
            raise FileNotFoundError(path)
        return node

    def read(self, path: str) -> bytes:
        return self.open_existing(path).read_at(0, 1 << 30)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.before_write(len(data))
        parent, name = self._parent(path)
        file = SimulatedFile(self, data)
        if sync:
            file.sync()
        parent.change(None, name, file)
        if sync:
            parent.sync()

    def scan(self, path: str) -> list[FileEntry]:
        self.before_read()
        node = self._find(path)
        if not isinstance(node, SimulatedDirectory):
            raise FileNotFoundError(path)
        return sorted(
            FileEntry(name, False, len(each.data), each.modified_ns)
            if isinstance(each, SimulatedFile)
            else FileEntry(name, True, 0, 0)
            for name, each in node.names.items()
        )

    def exists(self, path: str) -> bool:
        self.before_read()
        return self._find(path) is not None

    def holds(self, path: str) -> bool:
        """True if the name exists now; tests ask this, so no fault of the disk counts."""
        return self._find(path) is not None

    def make_dir(self, path: str) -> None:
        """Make the directory where a disk is mounted: it is synced from the beginning."""
        self.before_write(0)
        node, names = self._root, path.split("/")[1:]
        for name in names:
            below = node.names.get(name)
            if below is None:
                below = SimulatedDirectory()
                node.change(None, name, below)
            assert isinstance(below, SimulatedDirectory), path
            node = below
        self._root.sync()

    def rename(self, old: str, new: str) -> None:
        self.before_write(0)
        parent, name = self._parent(old)
        other, new_name = self._parent(new)
        assert parent is other, "renames stay in their directory"
        node, replaced = parent.names.get(name), parent.names.get(new_name)
        if node is None:
            raise FileNotFoundError(old)
        if isinstance(replaced, SimulatedDirectory) and replaced.names:
            raise OSError(ENOTEMPTY, "there is such a directory, and it is not empty")
        parent.change(name, new_name, node)

    def remove(self, path: str) -> None:
        self.before_write(0)
        try:
            parent, name = self._parent(path)
        except FileNotFoundError:
            return
        if name in parent.names:
            parent.change(name, None, None)

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._file(path).modified_ns = modified_ms * 1_000_000

    def _file(self, path: str) -> SimulatedFile:
        node = self._find(path)
        if not isinstance(node, SimulatedFile):
            raise FileNotFoundError(path)
        return node

    def sync_dir(self, path: str) -> None:
        self.before_write(0)
        node = self._find(path)
        if isinstance(node, SimulatedDirectory):
            node.sync()

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
        """Release the locks of the process, however it ended."""
        self._locks.clear()

    def lose_power(self, random: Random) -> None:
        """Lose what was not synced, with the machine or with the connection to the disk."""
        self._root.lose_power(random)
