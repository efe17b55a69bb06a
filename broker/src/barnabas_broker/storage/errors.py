"""A broken world, as the storage floor meets it. Caught at one boundary, the replica manager."""


class StorageError(Exception):
    """Something on disk failed; `log_dir` says where, the message what and what to do."""

    def __init__(self, log_dir: str, message: str) -> None:
        super().__init__(f"{log_dir}: {message}")
        self.log_dir = log_dir


class DiskFull(StorageError):
    """No space left: the directory takes no appends until there is; reads go on."""


class LogDirFailed(StorageError):
    """The directory cannot be read or written: its partitions are offline until it can."""


class CorruptLog(StorageError):
    """A batch in the middle of a log fails its checks: that partition is offline; the others live."""
