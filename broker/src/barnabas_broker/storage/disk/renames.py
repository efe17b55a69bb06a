"""The rename of several files as one step: all of them succeed, or all are undone."""

from collections.abc import Sequence

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.errors import half_done


def rename_all(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Rename each old path to its new path; undo all renames after an OSError.

    Raises the OSError, or HalfDone if a rename cannot be undone.
    """
    for number, (old, new) in enumerate(names):
        try:
            files.rename(old, new)
        except OSError:
            _rename_back(files, names[:number])
            raise


def _rename_back(files: FileSystem, names: Sequence[tuple[str, str]]) -> None:
    """Undo the renames, the last one first, so that a crash never leaves a later rename without the earlier ones."""
    for old, new in reversed(names):
        with half_done():
            files.rename(new, old)
