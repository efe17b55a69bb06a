"""The notes of restores for the runs that go on with them: a plan each, and a lock of each target topic.

They are in the archive, or in the folder that the option `state` names if nobody may write into the archive.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from barnabas_jobs.files.archive_folder import Store
from barnabas_jobs.planning.errors import JobFailed

RESTORES: Final = "restores"


class RestoreNotes:
    """The notes in one archive."""

    def __init__(self, store: Store, *, in_archive: bool) -> None:
        self._store = store
        self._in_archive = in_archive

    def check_writable(self) -> None:
        """Check the place before anything is made. Raises JobFailed."""
        try:
            self._store.make(RESTORES)
        except JobFailed as failure:
            if not self._in_archive:
                raise
            hint = "a restore keeps its plan there, if state=... does not name another folder for it"
            raise type(failure)(f"{failure}; {hint}") from failure

    @contextmanager
    def restored_by_us(self, into_id: str) -> Iterator[None]:
        """Keep others inside from restoring into the topic with this id, as far as these notes know."""
        with self._store.locked(f"{RESTORES}/{into_id}.lock", "restores into the same topic"):
            yield

    def plan(self, name: str, into_id: str) -> bytes | None:
        """The plan that an earlier run kept of this restore."""
        return self._store.read(_plan(name, into_id))

    def keep_plan(self, name: str, into_id: str, plan: bytes) -> None:
        """Keep the plan for runs that go on with it.

        Raises JobFailed if another run has kept one: a bucket has no locks.
        """
        if not self._store.add(_plan(name, into_id), plan):
            raise JobFailed(f"another run of the restore name={name} has begun meanwhile; wait until it has ended")


def _plan(name: str, into_id: str) -> str:
    return f"{RESTORES}/{name}-into-{into_id}.json"
