"""The data directory of `barnabas up`, held by one process: the brokers' folders, and the state between runs."""

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
    """The error that another process has locked the data directory; the message names it."""


class MemoryBroken(Exception):
    """The error that a status file cannot be read; the message says why."""


class DataDir:
    """A folder, made if need be, and locked for this process until `release`."""

    def __init__(self, path: Path) -> None:
        """Lock the folder. Raises DataDirHeld; OSError where the folder cannot be made."""
        self.path = path.resolve()
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = _take_lock(self.path / LOCK_FILE)
        self._written = b""

    def release(self) -> None:
        """Release the lock. The lock file stays, as its removal could let two processes in."""
        self._lock.close()

    @property
    def metadata_file(self) -> Path:
        """The SQLite file with the metadata that all brokers share."""
        return self.path / "metadata.sqlite"

    def broker_folder(self, broker_id: int) -> Path:
        """Return the folder with settings, log and volumes of one broker."""
        return self.path / f"broker-{broker_id}"

    def write_status(self, wanted: DesiredState) -> None:
        """Write the state for the next run, and the same as YAML for people and scripts."""
        memory = msgspec.json.encode(wanted)
        if memory == self._written:
            return
        replace_file(self.path / STATUS_FILE, resources_text(list(wanted.resources)))
        replace_file(self.path / MEMORY_FILE, memory.decode())
        self._written = memory

    def read_status(self) -> DesiredState | None:
        """Read the state that the last run has written; None without one. Raises MemoryBroken."""
        return read_status(self.path)


def _take_lock(path: Path) -> TextIO:
    lock = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise DataDirHeld(f"{path.parent} is held by another barnabas up, process {holder}") from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def read_status(path: Path) -> DesiredState | None:
    """Read the state that the last `barnabas up` in this data directory has written; None without one.

    Raises MemoryBroken.
    """
    file = path / MEMORY_FILE
    try:
        return msgspec.json.decode(file.read_bytes(), type=DesiredState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise MemoryBroken(f"{file}: {error}") from error


def replace_file(path: Path, text: str) -> None:
    """Readers see the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def replace_secret_file(path: Path, content: str | bytes) -> None:
    """Do as `replace_file` does, with a file that only its user may read."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    with open(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, SECRET_MODE), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    partial.replace(path)
