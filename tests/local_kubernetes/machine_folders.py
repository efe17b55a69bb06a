"""Empty folders of the machine on which every node mounts its own: they have no namespace.

They stay until the last cluster goes. Where one that mounts nothing itself removes such a folder, the kernel takes away
what all others have mounted there.
"""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from harness.kept_builds import cache
from local_kubernetes.whole_file import write_whole


class MachineFolders:
    """The folders that did not exist before, kept in a file. The caller holds `locked("network")`."""

    def __init__(self, record: Path | None = None) -> None:
        self._record = record or cache() / "machine-folders.json"

    def make(self, targets: Iterable[Path]) -> None:
        """Make the missing folders; the file lists them first, so that a killed start leaves none unknown."""
        wanted = list(targets)
        missing = {str(path) for target in wanted for path in (target, *target.parents) if not path.exists()}
        self._record.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self._record, json.dumps(sorted(missing.union(self._made()))))
        for target in wanted:
            target.mkdir(parents=True, exist_ok=True)

    def take_back(self) -> None:
        """Remove them, except those in which somebody has put something."""
        # What is in a folder sorts behind it.
        for made in sorted(self._made(), reverse=True):
            with suppress(OSError):
                Path(made).rmdir()
        self._record.unlink(missing_ok=True)

    def _made(self) -> list[str]:
        if not self._record.exists():
            return []
        return list(json.loads(self._record.read_text(encoding="utf-8")))
