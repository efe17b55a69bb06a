"""The store of cluster state: documents with compare-and-set, a watch without gaps, and leases.

One interface, several stores; `store_conformance` in the tests is what all of them pass. A version is the revision at
which a document was last written. Revisions rise with every change in the whole store.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple, Protocol

ABSENT: Final = 0
"""The version of a document that is not there: expecting it means "create only"."""


class Document(NamedTuple):
    """One stored document: JSON text, that a store may lay out in another way than it was given."""

    key: str
    value: bytes
    version: int


class Listing(NamedTuple):
    """All documents below a prefix, by key, as they were at `revision`: the place to begin a watch."""

    revision: int
    documents: Sequence[Document]


class Change(NamedTuple):
    """A document was written, or deleted where `value` is None."""

    revision: int
    key: str
    value: bytes | None


class Changes(NamedTuple):
    """The next changes below the prefix, in order. The watcher has now seen everything up to `revision`."""

    revision: int
    changes: Sequence[Change]


class Write(NamedTuple):
    """A document to put, or to delete if `value` is None. With `expected_version` None any version is replaced."""

    key: str
    value: bytes | None
    expected_version: int | None = None


class Lease(NamedTuple):
    """A name that `holder` has to itself until `expires_at_ms`. `token` rises with every new holder, so it fences.

    `expires_at_ms` is by this machine's clock that nobody sets (`clock.monotonic_ms`): wall clocks differ, and jump.
    """

    name: str
    holder: str
    token: int
    duration_ms: int
    expires_at_ms: int


class VersionConflict(Exception):
    """The error that another process wrote first: decide again on the present document."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(f"{key}: its version is {actual}, {expected} was expected")
        self.key = key
        self.expected = expected
        self.actual = actual


class HistoryCompacted(Exception):
    """The error that the changes since that revision are no longer kept: list again, then watch from there."""


class LeaseLost(Exception):
    """The error that another process has held the lease meanwhile."""


class StoreUnavailable(Exception):
    """The error that the store does not answer; a write under way may have happened or not."""


class MetadataStore(Protocol):
    """Every method may raise StoreUnavailable."""

    async def get(self, key: str) -> Document | None:
        """Return the document under a key; None if there is none. Raises StoreUnavailable."""
        ...

    async def listing(self, prefix: str) -> Listing:
        """Return all documents whose key begins with `prefix`."""
        ...

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        """Write one document; return its version, which may be the old one if nothing changed.

        Raises VersionConflict.
        """
        ...

    async def delete(self, key: str, expected_version: int | None = None) -> int:
        """Delete one document, which need not exist; return the revision of that. Raises VersionConflict."""
        ...

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Write many documents at the cost of one; return for each its revision, or its conflict."""
        ...

    async def latest_revision(self) -> int:
        """A revision that whatever was written before this call is not beyond, and that every watch gets to soon."""
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """Every change after `from_revision`, once and in order, for ever. Raises HistoryCompacted."""
        ...

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        """Acquire a lease; return None if another holder has it. `holder` names one run of one process."""
        ...

    async def renew_lease(self, lease: Lease) -> Lease:
        """Renew a lease for `duration_ms` from now. Raises LeaseLost once another holder has had it."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease at once. Harmless if it was lost."""
        ...

    async def leases(self, prefix: str) -> Sequence[Lease]:
        """Return all leases whose name begins with `prefix`, except those whose holder has certainly ended.

        Expired leases are included, as a renewal may be under way. A lease whose renewals this
        process has not followed so far may seem to begin now.
        """
        ...

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the same leases by the events that this process has received.

        It is cheap and may be stale: callers use it to see whether there is work, never to decide. A store may answer
        without a request.
        """
        ...

    async def close(self) -> None:
        """End the watches; leases of this process may be released."""
        ...
