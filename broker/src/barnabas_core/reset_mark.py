"""The mark of a declared reset in the metadata of the offsets that it commits."""

from collections.abc import Iterable
from typing import Final

RESET_MARK: Final = "barnabas.dev/reset="
"""Followed by the ids of resets, the last one first, separated by commas, which no id has; and a NUL."""
END: Final = "\0"
"""confluent-kafka reads metadata up to a NUL, whatever its length, and ends its own with one."""
MARK_LENGTH_MAX: Final = 256
"""Ids that do not fit are dropped, the oldest ones first: it is kept for each partition of the group."""


def is_marked(metadata: str) -> bool:
    """True if a reset left it."""
    return metadata.startswith(RESET_MARK)


def says_nothing(metadata: str, member_id: str) -> bool:
    """True if a client committed it without a message: franz-go's clients put their member id there."""
    return metadata in ("", END, member_id)


def reset_ids(metadata: str) -> tuple[str, ...]:
    """Return the resets in a committed offset's metadata, the last one first; none if a client wrote it."""
    if not is_marked(metadata):
        return ()
    return tuple(filter(None, metadata.removeprefix(RESET_MARK).rstrip(END).split(",")))


def reset_mark(reset_id: str, before: Iterable[str]) -> str:
    """Return the mark of a reset, after the marks `before`."""
    mark = RESET_MARK + reset_id
    for each in before:
        if each != reset_id and len(mark) + len(each) + 2 <= MARK_LENGTH_MAX:
            mark += f",{each}"
    return mark + END
