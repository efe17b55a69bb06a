"""A disk on which one step fails, once."""

import errno
import os

from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem
from barnabas_broker.storage.errors import SyncFailed
from harness.wrapped_file import WrappedFile


class FailsOnceFile(WrappedFile):
    """A file whose writes are steps; its syncs take no time."""

    def __init__(self, file: LogFile, disk: "FailsOnce") -> None:
        super().__init__(file)
        self._disk = disk

    def append(self, data: bytes | bytearray | memoryview, position: int) -> None:
        self._disk.step()
        super().append(data, position)

    def truncate(self, length: int) -> None:
        self._disk.step()
        super().truncate(length)

    def sync(self) -> None:
        self._disk.sync_step()


class FailsOnce(PosixFileSystem):
    """A disk on which one change fails, `steps_left` steps after it was set; the next ones pass."""

    steps_left = -1
    code = errno.EIO
    sync_has_failed = False

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise OSError(self.code, os.strerror(self.code))

    def sync_step(self) -> None:
        try:
            self.step()
        except OSError as error:
            self.sync_has_failed = True
            raise SyncFailed(error) from error

    def open_file(self, path: str) -> LogFile:
        if not self.exists(path):
            self.step()
        return FailsOnceFile(super().open_file(path), self)

    def write_atomically(self, path: str, data: bytes, *, sync: bool) -> None:
        self.step()
        if sync:
            self.sync_step()
        super().write_atomically(path, data, sync=False)
        if sync:
            self.sync_dir(os.path.dirname(path))

    def make_dir(self, path: str) -> None:
        if not self.exists(path):
            self.step()
        super().make_dir(path)

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self.step()
        super().remove(path)

    def sync_dir(self, path: str) -> None:
        self.sync_step()
