"""Which files of an archive are read."""

import pytest

from barnabas_jobs.files.local_folder import LocalFolder


def noted_reads(patch: pytest.MonkeyPatch) -> list[str]:
    """Grows with each read from now on, by the path in the archive."""
    found, read = list[str](), LocalFolder.read

    def noted(folder: LocalFolder, name: str) -> bytes | None:
        found.append(name)
        return read(folder, name)

    patch.setattr(LocalFolder, "read", noted)
    return found
