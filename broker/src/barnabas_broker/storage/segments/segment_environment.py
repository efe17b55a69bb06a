"""The dependencies of a segment."""

from random import Random
from typing import Protocol

from barnabas_broker.storage.disk.files import FileSystem
from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.segments.index_pages import IndexPages


class SegmentEnvironment(Protocol):
    """The attributes of a `LogEnvironment` that segments need."""

    @property
    def files(self) -> FileSystem:
        """The file system with the segment's files."""
        ...

    @property
    def open_files(self) -> OpenFiles:
        """The cap on the number of open files."""
        ...

    @property
    def random(self) -> Random:
        """The random numbers for the jitter of segment rolls."""
        ...

    @property
    def segment_bytes_max(self) -> int:
        """The largest size of a segment, regardless of its settings."""
        ...

    @property
    def index_pages(self) -> IndexPages:
        """The cache of index pages."""
        ...
