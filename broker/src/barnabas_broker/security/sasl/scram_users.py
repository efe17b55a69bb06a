"""The SCRAM credentials of all users, read from the secret store and updated when any broker changes them."""

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, StoreUnavailable
from barnabas_broker.metadata.store.secret_store import Secrets, SecretStore
from barnabas_broker.security.sasl.scram_credential import (
    SaltShape,
    ScramCredential,
    format_credential,
    parse_credential,
    shape_of,
)
from barnabas_core.clock import Cancellable, Clock, Timers

log = logging.getLogger(__name__)

RETRY_S: Final = 0.5
_PREFIX: Final = "scram/"
_SECRET_KEY: Final = "secret"
Named = tuple[str, str]
"""A user name and a mechanism name."""


class ScramUsers:
    """The SCRAM credentials of the cluster, as this broker knows them.

    A previous password ends at its wall-clock time, by a timer of each broker.
    """

    def __init__(
        self, store: SecretStore, sleep: Callable[[float], Awaitable[None]], clock: Clock, timers: Timers
    ) -> None:
        self._store = store
        self._sleep = sleep
        self._clock = clock
        self._timers = timers
        self._credentials: dict[Named, ScramCredential] = {}
        self._ends: dict[Named, Cancellable] = {}
        """The timers that end the previous passwords."""
        self._shapes: dict[str, Counter[SaltShape]] = {}
        """The number of users with each pair of salt length and iteration count, by mechanism."""
        self.secret = b""
        """A secret that all brokers of the cluster share."""
        self.on_change: Callable[[str, str, frozenset[bytes]], object] = lambda _user, _mechanism, _valid: None
        """A function that is called with each user and mechanism whose credential was changed or deleted.

        It also gets the ids of the verifiers that are still valid.
        """

    @property
    def credentials(self) -> Mapping[Named, ScramCredential]:
        """The current verifiers by user and mechanism."""
        return self._credentials

    def shapes(self, mechanism: str) -> Collection[SaltShape]:
        """Return the pairs of salt length and iteration count that the users' credentials for a mechanism have."""
        return self._shapes.get(mechanism, Counter[SaltShape]()).keys()

    async def load(self, new_secret: bytes) -> None:
        """Read all credentials and the shared secret; create the secret if no broker has created it yet.

        Raise StoreUnavailable if the secret store does not respond.
        """
        secret = await self._store.create(_SECRET_KEY, msgspec.json.encode(new_secret.hex()))
        self.secret = bytes.fromhex(msgspec.json.decode(secret, type=str))
        await self._read_all()

    async def follow(self) -> None:
        """Apply the changes of all brokers until the task is cancelled or the store is closed."""
        while True:
            try:
                async for secrets in self._store.follow():
                    self._apply(secrets)
                return
            except HistoryCompacted:
                log.info(
                    "reading all credentials again: the secret store no longer lists every change since the last read"
                )
            except StoreUnavailable as error:
                await self._later(error)
            await self._read_all_when_it_answers()

    async def change(self, changes: Mapping[Named, ScramCredential | None]) -> None:
        """Store and apply changes; None deletes a credential. Raise StoreUnavailable if the store does not respond."""
        await self._store.write(
            {_key(*name): None if verifier is None else _document(verifier) for name, verifier in changes.items()}
        )
        for name, verifier in changes.items():
            self._set(name, verifier)

    async def stored(self, names: Collection[Named]) -> Mapping[Named, ScramCredential]:
        """Return the credentials with these names as they are stored, even if this broker does not know them yet.

        Raise StoreUnavailable if the store does not respond.
        """
        found = await self._store.get([_key(*name) for name in names])
        read = {_name(key): _verifier(key, value) for key, value in found.items()}
        return {name: each for name, each in read.items() if each is not None}

    async def _read_all_when_it_answers(self) -> None:
        while True:
            try:
                return await self._read_all()
            except StoreUnavailable as error:
                await self._later(error)

    async def _later(self, error: StoreUnavailable) -> None:
        log.warning("the secret store with the credentials does not answer, trying again: %s", error)
        await self._sleep(RETRY_S)

    async def _read_all(self) -> None:
        stored = await self._store.read()
        gone = self._credentials.keys() - {_name(key) for key in stored if key.startswith(_PREFIX)}
        self._apply({**{_key(*name): None for name in gone}, **stored})

    def _apply(self, secrets: Secrets) -> None:
        for key, value in secrets.items():
            if not key.startswith(_PREFIX):
                continue
            if value is None:
                self._set(_name(key), None)
            elif (verifier := _verifier(key, value)) is not None:
                self._set(_name(key), verifier)

    def _set(self, name: Named, verifier: ScramCredential | None) -> None:
        before = self._credentials.get(name)
        verifier = None if verifier is None else verifier.at(self._clock.now_ms())
        self._await_end(name, verifier)
        if verifier == before:
            return
        shapes = self._shapes.setdefault(name[1], Counter())
        if verifier is None:
            del self._credentials[name]
        else:
            self._credentials[name] = verifier
            shapes[shape_of(verifier)] += 1
        if before is not None:
            shapes[shape_of(before)] -= 1
            shapes += Counter()  # Adding an empty Counter removes shapes with the count 0.
            self.on_change(*name, frozenset() if verifier is None else verifier.verifier_ids)

    def _await_end(self, name: Named, verifier: ScramCredential | None) -> None:
        """Set the timer for the end of the previous password."""
        earlier = self._ends.pop(name, None)
        if earlier is not None:
            earlier.cancel()
        if verifier is not None and verifier.previous is not None:
            left_s = (verifier.previous.ends_ms - self._clock.now_ms()) / 1000
            current = replace(verifier, previous=None)
            self._ends[name] = self._timers.call_later(left_s, partial(self._set, name, current))


def _key(user: str, mechanism: str) -> str:
    return f"{_PREFIX}{mechanism}/{user}"


def _name(key: str) -> Named:
    mechanism, _, user = key.removeprefix(_PREFIX).partition("/")
    return user, mechanism


def _document(verifier: ScramCredential) -> bytes:
    return msgspec.json.encode(format_credential(verifier))


def _verifier(key: str, value: bytes) -> ScramCredential | None:
    """Return the stored credential; if it is invalid, log its key but not its content, and return None."""
    try:
        return parse_credential(msgspec.json.decode(value, type=str))
    except (ValueError, msgspec.MsgspecError):
        log.error("the credential %s cannot be read; set it again with kafka-configs", key)
        return None
