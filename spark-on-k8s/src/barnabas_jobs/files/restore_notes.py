"""The notes of restores: the plan of each restore, for runs that continue it, and a lock for each target topic.

The notes are in the archive, or in the folder that the option `state` names, if the archive is read-only.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_jobs.files.store import Store
from barnabas_jobs.planning.errors import JobFailed

RESTORES: Final = "restores"


class RestoreNotes:
    """The plans and locks of restores, in the archive itself or in the folder that the option `state` names."""

    def __init__(self, store: Store, *, in_archive: bool) -> None:
        self._store = store
        self._in_archive = in_archive

    def check_writable(self) -> None:
        """Create the folder for plans and locks. Raises JobFailed if this fails.

        A restore calls this before it changes the cluster.
        """
        try:
            self._store.make(RESTORES)
            self._store.check_add()
        except JobFailed as failure:
            if not self._in_archive:
                raise
            hint = "a restore writes its plan into the archive, or into another folder with state=FOLDER"
            raise type(failure)(f"{failure}; {hint}") from failure

    @contextmanager
    def restored_by_us(self, into_id: str) -> Iterator[None]:
        """Keep other runs from restoring into this topic id while the block runs, if the store has locks.

        Raises JobFailed if another run is restoring into the topic id.
        """
        with self._store.locked(f"{RESTORES}/{into_id}.lock", "is restoring into the same topic"):
            yield

    def plan(self, name: str, into_id: str) -> bytes | None:
        """Return the plan that an earlier run of this restore has stored, or None if there is none."""
        return self._store.read(_plan(name, into_id))

    def keep_plan(self, name: str, into_id: str, plan: bytes) -> None:
        """Store the plan of this restore, so that later runs can continue the restore.

        Raises JobFailed if another run has stored a plan first. This can happen only in a store without locks, which
        cannot keep two runs from beginning the same restore.
        """
        if not self._store.add(_plan(name, into_id), plan):
            raise JobFailed(f"another run of the restore name={name} has begun; wait until that run has ended")


def _plan(name: str, into_id: str) -> str:
    return f"{RESTORES}/{name}-into-{into_id}.json"
