"""The dependencies of a segment on its log's environment."""

from random import Random
from typing import Protocol

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.segments.index_pages import IndexPages


class SegmentEnvironment(Protocol):
    """The part of a `LogEnvironment` that segments need."""

    @property
    def files(self) -> FileSystem:
        """The disk that the segment's files are on."""
        ...

    @property
    def open_files(self) -> OpenFiles:
        """Bounds how many are open at once."""
        ...

    @property
    def random(self) -> Random:
        """Chance, for the time at which a segment rolls."""
        ...

    @property
    def segment_bytes_max(self) -> int:
        """The largest segment, whatever its settings are."""
        ...

    @property
    def index_pages(self) -> IndexPages:
        """Index entries that are still to be written."""
        ...
