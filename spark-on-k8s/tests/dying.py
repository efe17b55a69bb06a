"""A process that ends at any of its file operations."""

import os
from pathlib import Path

import pytest

from barnabas_jobs.files import local_folder


class Died(BaseException):
    """The end of the process; it is no Exception, so that no handler of the code under test catches it."""


class dies_after:  # noqa: N801  # It reads as a verb.
    """Ends the process at the file operation after this many."""

    def __init__(self, patch: pytest.MonkeyPatch, allowed: int) -> None:
        self.left = allowed
        self.happened = False
        for name in ("open", "fsync", "link"):
            patch.setattr(os, name, self._counted(getattr(os, name)))
        patch.setattr(local_folder, "_write_synced", self._counted(local_folder._write_synced))
        patch.setattr(Path, "unlink", self._counted(Path.unlink))

    def _counted(self, real: object) -> object:
        def call(*arguments: object, **named: object) -> object:
            self.left -= 1
            if self.left < 0:
                self.happened = True
                raise Died
            return real(*arguments, **named)  # type: ignore[operator]

        return call

    def expected(self) -> "dies_after":
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        return kind is Died
