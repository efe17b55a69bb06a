"""The interface of the store for a cluster's secrets: SCRAM credentials, which must not be in the metadata.

The tests in `secret_conformance` apply to every implementation.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import Protocol

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
