"""Files of tables in a local folder, which survive a power cut once they are closed.

pyiceberg's own IO leaves files to the cache of the kernel, while the catalog syncs the commit that names these files.
"""

import io
import os
from pathlib import Path
from typing import Any, Final

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from barnabas_jobs.files.local_folder import sync

IMPLEMENTATION: Final = "barnabas_jobs.files.durable_io.DurableFileIO"
"""The value of the catalog property `py-io-impl`."""


class DurableFileIO(PyArrowFileIO):
    """The IO of tables whose files are local."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file that is synced when its stream is closed."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        return _DurableFile(location, path, self.fs_by_scheme(scheme, netloc))


class _DurableFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        """Create the file, and return its stream. Raises FileExistsError if there is one and `overwrite` is false."""
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _Synced(io.FileIO(path, "wb" if overwrite else "xb"), path.parent)


class _Synced(io.BufferedWriter):
    def __init__(self, raw: io.FileIO, folder: Path) -> None:
        super().__init__(raw)
        self._folder = folder

    def close(self) -> None:
        """Sync file and folder, and close the file."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            sync(self._folder)
        super().close()
