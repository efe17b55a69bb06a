"""The replacement of old segments by compacted ones. A crash at any moment neither loses nor repeats records.

`.cleaned` files are incomplete, and the next start removes them. Complete and synced files are renamed to `.swap`, and
the old files are removed only after this rename. If a crash interrupts the swap after the rename, the next start
finishes the swap.
"""

from collections.abc import Iterable
from typing import Final

from barnabas_broker.storage.disk import file_names
from barnabas_broker.storage.disk.files import FileEntry, FileSystem
from barnabas_broker.storage.errors import lacks_space
from barnabas_broker.storage.segments.batch_scan import SCAN_CHUNK_BYTES, scan_batches

_MARKS: Final = (file_names.DELETED, file_names.CLEANED, file_names.SWAP, ".tmp")


def promoted_names(files: FileSystem, directory: str, offsets: Iterable[int]) -> list[tuple[str, str]]:
    """Return the path of each `.cleaned` file, and its path after the rename to `.swap`.

    If a crash interrupts the swap after this rename, the next start completes the swap.
    """
    return _names(files, directory, offsets, file_names.CLEANED, file_names.SWAP)


def finish_swap(files: FileSystem, directory: str, offsets: Iterable[int]) -> None:
    """Rename the `.swap` files to their final names."""
    for old, new in _names(files, directory, offsets, file_names.SWAP, ""):
        files.rename(old, new)


def _names(files: FileSystem, directory: str, offsets: Iterable[int], old: str, new: str) -> list[tuple[str, str]]:
    paths = [
        f"{directory}/{file_names.segment_file(offset, suffix)}"
        for offset in offsets
        for suffix in file_names.SEGMENT_SUFFIXES
    ]
    return [(path + old, path + new) for path in paths if files.exists(path + old)]


def finish_interrupted_swap(files: FileSystem, directory: str) -> list[FileEntry]:
    """Finish an interrupted swap of segments, and return the files that are then in `directory`.

    Files that are marked as unfinished or deleted are removed.
    """
    entries = files.scan(directory)
    marked = [entry.name for entry in entries if entry.name.endswith(_MARKS)]
    if not marked:
        return entries
    swaps = {name for name in marked if name.endswith(file_names.SWAP)}
    _remove_unfinished(files, [f"{directory}/{name}" for name in set(marked) - swaps])
    parsed_swaps = [parsed for name in swaps if (parsed := file_names.parse_segment_file(name))]
    for swap in parsed_swaps:
        if swap.suffix == file_names.LOG:
            _remove_replaced(files, directory, entries, swap.offset)
    finish_swap(files, directory, {swap.offset for swap in parsed_swaps})
    return files.scan(directory)


def _remove_unfinished(files: FileSystem, paths: Iterable[str]) -> None:
    """Remove files. If the disk is too full to remove a file, the file stays, which does no harm."""
    for path in paths:
        try:
            files.remove(path)
        except OSError as error:
            if not lacks_space(error):
                raise


def _remove_replaced(files: FileSystem, directory: str, entries: Iterable[FileEntry], base_offset: int) -> None:
    """Remove the old segments that the swap file replaces, from its base offset to its last offset."""
    path = f"{directory}/{file_names.segment_file(base_offset, file_names.LOG)}{file_names.SWAP}"
    file = files.open_file(path)
    end_offset = base_offset + 1
    for batch in scan_batches(file, 0, file.size_bytes(), base_offset, chunk_bytes=SCAN_CHUNK_BYTES):
        end_offset = batch.header.last_offset + 1
    for entry in entries:
        old = file_names.parse_segment_file(entry.name)
        if old and not old.state and old.suffix != file_names.SNAPSHOT and base_offset <= old.offset < end_offset:
            files.remove(f"{directory}/{entry.name}")
