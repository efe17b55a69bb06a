"""The rename of several files as one step: they all have their new names, or all their old ones."""

from collections.abc import Sequence

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import half_done


def rename_all(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Rename each first name to its second. On OSError none is renamed, unless it is HalfDone."""
    for number, (old, new) in enumerate(names):
        try:
            files.rename(old, new)
        except OSError:
            _rename_back(files, names[:number])
            raise


def _rename_back(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """The last first: a crash meanwhile is one of an earlier moment."""
    for old, new in reversed(names):
        with half_done():
            files.rename(new, old)
