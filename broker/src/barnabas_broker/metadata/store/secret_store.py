"""The place of a cluster's secrets: SCRAM credentials, which no document of the metadata may hold.

One interface, two stores; `secret_conformance` in the tests is what both of them pass.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

Secrets = Mapping[str, bytes | None]
"""Secrets by key, as JSON texts; None for a deleted one."""


class SecretStore(Protocol):
    """Every method may raise StoreUnavailable."""

    async def create(self, key: str, value: bytes) -> bytes:
        """Store a secret unless the key has one; return the stored one."""
        ...

    async def write(self, secrets: Secrets) -> None:
        """Store these secrets, and delete those that are None. After an error some may have been written."""
        ...

    async def read(self) -> Mapping[str, bytes]:
        """Return all secrets."""
        ...

    def follow(self) -> AsyncIterator[Secrets]:
        """Yield the changes since the last `read`, then every change within a minute, until `close`.

        Raises HistoryCompacted, too. After an exception all secrets must be read again.
        """
        ...

    async def close(self) -> None:
        """End the requests under way, and `follow`."""
        ...
