"""The place of a cluster's secrets: SCRAM credentials, which no document of the metadata may hold.

One interface, two stores; `secret_conformance` in the tests is what both of them pass.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

Secrets = Mapping[str, bytes | None]
"""Secrets by key, as JSON texts; None for one that is not there any more."""


class SecretStore(Protocol):
    """Every method may raise StoreUnavailable."""

    async def create(self, key: str, value: bytes) -> bytes:
        """Store a secret unless there is one under this key, and return the one that is there then."""
        ...

    async def write(self, secrets: Secrets) -> None:
        """Store these secrets, and delete those that are None. Where that fails, some may have been written."""
        ...

    async def read(self) -> Mapping[str, bytes]:
        """Return all secrets."""
        ...

    def follow(self) -> AsyncIterator[Secrets]:
        """Yield what has changed since the last `read`, then every change within a minute, until `close`.

        Raises HistoryCompacted, too. After an exception everything has to be read again.
        """
        ...

    async def close(self) -> None:
        """End what is under way."""
        ...
