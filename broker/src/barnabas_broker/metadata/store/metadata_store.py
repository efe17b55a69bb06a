"""The interface of the metadata store: JSON documents by key, compare-and-set, a watch without gaps, and leases.

A version is the revision at which a document was last written. Revisions rise with every change in the whole store. The
tests in `store_conformance` apply to all stores.

The interface of the store for a cluster's secrets: SCRAM credentials, which must not be in the metadata. The tests
in `secret_conformance` apply to every implementation.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

ABSENT: Final = 0
"""The version to expect of a key that does not exist.

A write that expects ABSENT fails if the key exists already.
"""


class Document(NamedTuple):
    """A stored value with its key and version.

    `value` is JSON. A store may return the JSON with other whitespace or another order of fields than was written.
    """

    key: str
    value: bytes
    version: int


class Listing(NamedTuple):
    """All documents, by key, and the revision from which a watch can continue."""

    revision: int
    documents: Sequence[Document]


class Change(NamedTuple):
    """A write of a key of the metadata store, or a deletion of the key if `value` is None."""

    revision: int
    key: str
    value: bytes | None


class Changes(NamedTuple):
    """The next changes, in order. The watcher now knows all changes up to `revision`."""

    revision: int
    changes: Sequence[Change]


class Write(NamedTuple):
    """A value to store under a key; None deletes the key. An `expected_version` of None replaces any version."""

    key: str
    value: bytes | None
    expected_version: int | None = None


class Lease(NamedTuple):
    """A lease, which only `holder` has until `expires_at_ms`. `token` rises with every new holder, for fencing.

    `expires_at_ms` is on the monotonic clock of this machine (`clock.monotonic_ms`), because wall clocks differ
    between machines, and may jump.
    """

    name: str
    holder: str
    token: int
    duration_ms: int
    expires_at_ms: int


class VersionConflict(Exception):
    """The error that another process wrote the key first. The caller has to decide again, from the current value."""

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(
            f"the key {key} of the metadata store has version {actual}, but version {expected} was expected"
        )
        self.key = key
        self.expected = expected
        self.actual = actual


class HistoryCompacted(Exception):
    """The error that the store no longer has all changes since the requested revision.

    The caller must list all values again.
    """


class LeaseLost(Exception):
    """The error that another process has acquired the lease since this process last renewed the lease."""


class StoreUnavailable(Exception):
    """The error that the store does not answer. A write under way may have happened or not."""


class MetadataStore(Protocol):
    """A store of JSON documents, by key, and of leases. Every method may raise StoreUnavailable."""

    async def get(self, key: str) -> Document | None:
        """Return the value stored under a key with its version, or None if the key does not exist."""
        ...

    async def listing(self) -> Listing:
        """Return all stored values, in the order of their keys."""
        ...

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        """Write the value of a key; return its version, which may stay the same if the content did not change.

        Raises VersionConflict if `expected_version` is given and differs from the stored version.
        """
        ...

    async def write(self, writes: Sequence[Write]) -> list[int | VersionConflict]:
        """Write many keys in one call; return the revision or the conflict of each write."""
        ...

    async def latest_revision(self) -> int:
        """Return a revision that includes all earlier writes, and that every watch will soon reach."""
        ...

    def watch(self, from_revision: int) -> AsyncIterator[Changes]:
        """Yield every change after `from_revision`, once and in order, without an end.

        Raises HistoryCompacted if the store no longer keeps all of these changes.
        """
        ...

    async def acquire_lease(self, name: str, holder: str, duration_ms: int) -> Lease | None:
        """Acquire a lease for `holder`, or renew the lease if `holder` has it; return None if another holder has it.

        The name of a holder must be unique for each start of a process.
        """
        ...

    async def renew_lease(self, lease: Lease) -> Lease:
        """Renew a lease for `duration_ms` from now. Raises LeaseLost if another holder has acquired the lease."""
        ...

    async def release_lease(self, lease: Lease) -> None:
        """Release the lease at once, or do nothing if the lease was lost."""
        ...

    async def leases(self, prefix: str) -> Sequence[Lease]:
        """Return all leases whose name begins with `prefix`, except leases whose holder has certainly ended.

        Expired leases are included, because a renewal may be under way. A lease that this process sees for the first
        time may be returned as if the lease had just been renewed.
        """
        ...

    async def followed_leases(self, prefix: str) -> Sequence[Lease]:
        """Return the leases whose name begins with `prefix`, as a watch last reported them.

        The call is cheap, but the leases may be out of date. Callers use the leases only to see whether there may be
        work, and call `leases` before they decide.
        """
        ...

    async def close(self) -> None:
        """Close the store, and end the watches. Some stores also release the leases that this process holds."""
        ...


_SQLITE: Final = "sqlite:///"
_KUBERNETES: Final = "kubernetes://"


class SqliteFile(NamedTuple):
    """The location `sqlite:///PATH`; with an absolute path it has four slashes."""

    path: Path


class KubernetesCluster(NamedTuple):
    """The location `kubernetes://NAMESPACE/CLUSTER`: objects in the namespace with the cluster's label."""

    namespace: str
    cluster: str


def location(metadata_store: str) -> SqliteFile | KubernetesCluster:
    """Return the location that the setting `metadata.store` names."""
    if metadata_store.startswith(_KUBERNETES):
        namespace, _, cluster = metadata_store.removeprefix(_KUBERNETES).partition("/")
        return KubernetesCluster(namespace, cluster)
    assert metadata_store.startswith(_SQLITE), "metadata.store must begin with kubernetes:// or sqlite://"
    return SqliteFile(Path(metadata_store.removeprefix(_SQLITE)))


Secrets = Mapping[str, bytes | None]
"""The secrets by key, as JSON; None stands for a deleted secret."""


class SecretStore(Protocol):
    """A store of secrets. Every method may raise StoreUnavailable."""

    async def create(self, key: str, value: bytes) -> bytes:
        """Store a secret unless the key has one already; return the stored secret."""
        ...

    async def write(self, secrets: Secrets) -> None:
        """Store these secrets, and delete those whose value is None. After an error some may have been written."""
        ...

    async def read(self) -> Mapping[str, bytes]:
        """Return all secrets."""
        ...

    async def get(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return those of these secrets that exist, as they are stored now. This does not affect `follow`."""
        ...

    def follow(self) -> AsyncIterator[Secrets]:
        """Yield the changes since the last `read`, then the later changes, until `close` is called.

        Each change is yielded at most a minute after it was made. Raises HistoryCompacted if the store no longer keeps
        all changes since the last `read`. After an exception, the caller must read all secrets again.
        """
        ...

    async def close(self) -> None:
        """End all requests that are under way, and all calls of `follow`."""
        ...
