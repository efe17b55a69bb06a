"""A run that ends at any step of its commits: a file of a table, a commit in the catalog, or a removal."""

from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from barnabas_jobs.files.archive_tables import DurableFileIO
from barnabas_jobs.files.store import LocalFolder


class Died(BaseException):
    """The end of the process; it is no Exception, so that no handler of the code under test catches it."""


class dies_after:  # noqa: N801  # It reads as a verb.
    """Ends the run at the step after this many; a commit counts as two steps, before and after it."""

    def __init__(self, patch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        self.happened = False
        patch.setattr(DurableFileIO, "new_output", self._counted(DurableFileIO.new_output))
        patch.setattr(SqlCatalog, "commit_table", self._counted(SqlCatalog.commit_table, after=True))
        patch.setattr(LocalFolder, "remove", self._counted(LocalFolder.remove))

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.happened = True
            raise Died

    def _counted(self, real: Any, *, after: bool = False) -> Any:
        def call(*arguments: object, **named: object) -> object:
            self._step()
            answer = real(*arguments, **named)
            if after:
                self._step()
            return answer

        return call

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return kind is Died
