"""The data directory of `barnabas up`, locked by one process, with the brokers' folders and the resources."""

import fcntl
import os
from pathlib import Path
from typing import Final, TextIO

import msgspec

from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.resources.yaml_text import resources_text

DEFAULT: Final = Path(".barnabas")
STATUS_FILE: Final = "status.yaml"
MEMORY_FILE: Final = "memory.json"
LOCK_FILE: Final = "lock"
SECRET_MODE: Final = 0o600


class DataDirHeld(Exception):
    """The error that another process has locked the data directory; the message has its process id."""


class MemoryBroken(Exception):
    """The error that the resources of the last `barnabas up` cannot be read; the message has the reason."""


class DataDir:
    """A data directory, locked for this process until `release`."""

    def __init__(self, path: Path) -> None:
        """Create and lock the folder. Raises DataDirHeld, or OSError if folder or lock file cannot be created."""
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path / LOCK_FILE)
        self._written = b""

    def release(self) -> None:
        """Release the lock, but keep the lock file.

        If the file were deleted, one process could lock the deleted file, and another process a new lock file.
        """
        self._lock.close()

    @property
    def metadata_file(self) -> Path:
        """The SQLite file with the metadata that all brokers share."""
        return self.path / "metadata.sqlite"

    def broker_folder(self, broker_id: int) -> Path:
        """Return the folder with the settings, log and data of one broker."""
        return self.path / f"broker-{broker_id}"

    def write_status(self, wanted: DesiredState) -> None:
        """Write the resources, if they have changed, as JSON for the next `barnabas up` and as YAML for users."""
        memory = msgspec.json.encode(wanted)
        if memory == self._written:
            return
        replace_file(self.path / STATUS_FILE, resources_text(list(wanted.resources)))
        replace_file(self.path / MEMORY_FILE, memory.decode())
        self._written = memory

    def read_status(self) -> DesiredState | None:
        """Return the resources that the last `barnabas up` wrote; None if there are none.

        Raises MemoryBroken if the file cannot be read.
        """
        return read_status(self.path)


def _take_lock(path: Path) -> TextIO:
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DataDirHeld(f"{path.parent} is in use by another `barnabas up`, process {holder}") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def read_status(path: Path) -> DesiredState | None:
    """Return the resources that the last `barnabas up` wrote to this data directory; None if there are none.

    Raises MemoryBroken if the file cannot be read.
    """
    file = path / MEMORY_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=DesiredState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise MemoryBroken(f"{file}: {error}") from error


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, so that readers see either the old or the new text."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def replace_secret_file(path: Path, content: str | bytes) -> None:
    """Replace a file atomically by a file that only its owner may read."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, SECRET_MODE), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    partial.replace(path)
