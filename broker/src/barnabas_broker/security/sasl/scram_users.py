"""The SCRAM credentials of all users: read from a store of their own, followed while others change them, and changed.

The store is none of the metadata's: its documents are secrets. `follow` brings a change to every broker at once.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import msgspec

from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Change,
    Changes,
    HistoryCompacted,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
    Write,
)
from barnabas_broker.security.sasl.scram_credential import ScramCredential, format_credential, parse_credential

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
_PREFIX: Final = "scram/"
_SECRET_KEY: Final = "secret"
Named = tuple[str, str]
"""A user and a mechanism."""


class ScramUsers:
    """The credentials of the cluster as this broker knows them."""

    def __init__(self, store: MetadataStore, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._store = store
        self._sleep = sleep
        self._credentials: dict[Named, ScramCredential] = {}
        self._revision = 0
        self.secret = b""
        """The same on all brokers, and known to nobody else."""
        self.on_change: Callable[[str, str], object] = lambda _user, _mechanism: None
        """Hears of each user and mechanism whose credential was changed or deleted."""

    @property
    def credentials(self) -> Mapping[Named, ScramCredential]:
        """The verifiers by user and mechanism, as they are now."""
        return self._credentials

    async def load(self, new_secret: bytes) -> None:
        """Read all that is stored; the first broker stores the secret. Raises StoreUnavailable."""
        try:
            await self._store.put(_SECRET_KEY, msgspec.json.encode(new_secret.hex()), ABSENT)
            self.secret = new_secret
        except VersionConflict:
            stored = await self._store.get(_SECRET_KEY)
            assert stored is not None, "nobody deletes the secret"
            self.secret = bytes.fromhex(msgspec.json.decode(stored.value, type=str))
        await self._list()

    async def follow(self) -> None:
        """Apply the changes of all brokers until it is cancelled or the store is closed."""
        while True:
            try:
                async for changes in self._store.watch(_PREFIX, self._revision):
                    self._apply(changes)
                return
            except HistoryCompacted:
                await self._list_unless_away()
            except StoreUnavailable as error:
                log.warning("the store of credentials does not answer, trying again: %s", error)
                await self._sleep(RETRY_S)

    async def change(self, changes: Mapping[Named, ScramCredential | None]) -> None:
        """Store credentials, None for one to delete, and use them from now on. Raises StoreUnavailable."""
        writes = [
            Write(_key(user, mechanism), None if verifier is None else _document(verifier))
            for (user, mechanism), verifier in changes.items()
        ]
        await self._store.write(writes)
        for name, verifier in changes.items():
            self._set(name, verifier)

    async def _list_unless_away(self) -> None:
        try:
            await self._list()
        except StoreUnavailable as error:
            log.warning("the store of credentials does not answer, trying again: %s", error)
            await self._sleep(RETRY_S)

    async def _list(self) -> None:
        listing = await self._store.listing(_PREFIX)
        found = dict(_read((each.key, each.value) for each in listing.documents))
        for name in [*self._credentials.keys() - found.keys(), *found]:
            self._set(name, found.get(name))
        self._revision = listing.revision

    def _apply(self, changes: Changes) -> None:
        for change in changes.changes:
            self._apply_one(change)
        self._revision = changes.revision

    def _apply_one(self, change: Change) -> None:
        if change.value is None:
            self._set(_name(change.key), None)
            return
        for name, verifier in _read([(change.key, change.value)]):
            self._set(name, verifier)

    def _set(self, name: Named, verifier: ScramCredential | None) -> None:
        before = self._credentials.get(name)
        if verifier == before:
            return
        if verifier is None:
            del self._credentials[name]
        else:
            self._credentials[name] = verifier
        if before is not None:
            self.on_change(*name)


def _key(user: str, mechanism: str) -> str:
    return f"{_PREFIX}{mechanism}/{user}"


def _name(key: str) -> Named:
    mechanism, _, user = key.removeprefix(_PREFIX).partition("/")
    return user, mechanism


def _document(verifier: ScramCredential) -> bytes:
    return msgspec.json.encode(format_credential(verifier))


def _read(documents: Iterable[tuple[str, bytes]]) -> Iterable[tuple[Named, ScramCredential]]:
    """Return what can be read; the log names the key of the rest, never what is in it."""
    for key, value in documents:
        try:
            yield _name(key), parse_credential(msgspec.json.decode(value, type=str))
        except (ValueError, msgspec.MsgspecError):
            log.error("the credential %s cannot be read; set it again with kafka-configs", key)
