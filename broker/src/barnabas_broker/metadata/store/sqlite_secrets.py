"""The secrets of brokers on one machine, in a SQLite file of their own that only its owner may read."""

import os
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Final, Self

from barnabas_broker.metadata.store.metadata_store import ABSENT, Secrets, StoreUnavailable, VersionConflict, Write
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.clock import Clock

SECRET_MODE: Final = 0o600


class SqliteSecrets:
    """A SecretStore in SQLite. A change reaches the other processes at once."""

    def __init__(self, store: SqliteStore) -> None:
        """Call `open` instead of this constructor."""
        self._store = store
        self._revision = 0

    @classmethod
    async def open(cls, path: Path, clock: Clock, boot_id: str = "") -> Self:
        """Open the store in the file `path`, creating it if absent. Raises StoreUnavailable."""
        try:
            # The mode is set before SQLite opens the file, because SQLite gives its WAL files the same mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, SECRET_MODE))
            path.chmod(SECRET_MODE)
        except OSError as error:
            raise StoreUnavailable(str(error)) from error
        return cls(await SqliteStore.open(path, clock, boot_id))

    async def create(self, key: str, value: bytes) -> bytes:
        """Store a secret unless the key has one already; return the stored secret."""
        try:
            await self._store.put(key, value, ABSENT)
        except VersionConflict:
            found = await self._store.get(key)
            return await self.create(key, value) if found is None else found.value
        return value

    async def write(self, secrets: Secrets) -> None:
        """Store these secrets, and delete those whose value is None."""
        await self._store.write([Write(key, value) for key, value in secrets.items()])

    async def read(self) -> Mapping[str, bytes]:
        """Return all secrets."""
        listing = await self._store.listing()
        self._revision = listing.revision
        return {each.key: each.value for each in listing.documents}

    async def get(self, keys: Collection[str]) -> Mapping[str, bytes]:
        """Return those of these secrets that exist, as they are stored now."""
        found = [await self._store.get(key) for key in keys]
        return {each.key: each.value for each in found if each is not None}

    async def follow(self) -> AsyncIterator[Secrets]:
        """Yield the changes since the last `read`, and later changes, until `close` is called."""
        async for changes in self._store.watch(self._revision):
            self._revision = changes.revision
            yield {each.key: each.value for each in changes.changes}

    async def close(self) -> None:
        """End all calls of `follow`, and close the file."""
        await self._store.close()
