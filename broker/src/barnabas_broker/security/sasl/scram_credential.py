"""The secrets that the broker stores: verifiers of SCRAM users (RFC 5802), and sealed passwords of its settings.

A verifier can check a client, but does not suffice to log in.
"""

import logging
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from hashlib import new, pbkdf2_hmac, sha256
from hmac import compare_digest, digest
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from barnabas_broker.metadata.store.metadata_store import HistoryCompacted, Secrets, SecretStore, StoreUnavailable
from barnabas_core.clock import Cancellable, Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.broker_definitions import broker_definition

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16_384
_ID_BYTES: Final = 8


class ScramHash(msgspec.Struct, frozen=True):
    """A SCRAM mechanism with its name, its number in the protocol (KIP-554), its hash function and its key size."""

    mechanism: str
    number: int
    function: str
    key_bytes: int


SCRAM_HASHES: Final[Mapping[str, ScramHash]] = {
    each.mechanism: each
    for each in (ScramHash("SCRAM-SHA-256", 1, "sha256", 32), ScramHash("SCRAM-SHA-512", 2, "sha512", 64))
}
BY_NUMBER: Final = {each.number: each for each in SCRAM_HASHES.values()}


class ScramKeys(msgspec.Struct, frozen=True):
    """The two keys of a verifier; `repr` shows neither."""

    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return "ScramKeys()"

    @property
    def verifier_id(self) -> bytes:
        """An id by which a session refers to the verifier, without its keys."""
        return sha256(self.stored_key).digest()[:_ID_BYTES]


class PreviousPassword(msgspec.Struct, frozen=True):
    """The keys of the password before the current one, which are valid until a wall-clock time."""

    keys: ScramKeys
    ends_ms: int


class ScramCredential(msgspec.Struct, frozen=True):
    """The verifier of a user and mechanism; `repr` shows neither its salt nor its keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int
    previous: PreviousPassword | None = None
    """The previous password, if it is still valid. It has the same salt and iteration count as the current one.

    The server's first message contains salt and iteration count. So one dialogue can check both passwords.
    """

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations}, previous={self.previous!r})"

    @property
    def keys(self) -> ScramKeys:
        """The keys of the current password."""
        return ScramKeys(self.stored_key, self.server_key)

    @property
    def valid_keys(self) -> tuple[ScramKeys, ScramKeys]:
        """The keys of both valid passwords; twice those of the current one if it is the only one.

        There are always two, so that response times do not reveal which users have two passwords.
        """
        return self.keys, self.keys if self.previous is None else self.previous.keys

    @property
    def verifier_ids(self) -> frozenset[bytes]:
        """The ids of the valid passwords."""
        return frozenset(each.verifier_id for each in self.valid_keys)

    def has_salt_of(self, other: "ScramCredential") -> bool:
        """True if salt and iteration count of both credentials are equal."""
        return (self.salt, self.iterations) == (other.salt, other.iterations)

    def at(self, now_ms: int) -> "ScramCredential":
        """Return the credential without the previous password if that has ended."""
        has_ended = self.previous is not None and self.previous.ends_ms <= now_ms
        return replace(self, previous=None) if has_ended else self

    def keys_of(self, stored_key: bytes) -> ScramKeys | None:
        """Return the valid keys with this stored key; None if no valid password has it."""
        found = [each for each in self.valid_keys if compare_digest(each.stored_key, stored_key)]
        return found[0] if found else None


class SaltShape(msgspec.Struct, frozen=True):
    """The length of a salt and the iteration count, which may reveal the tool that set the password."""

    salt_bytes: int
    """The length of the salt in bytes, or TEXT for a salt that Kafka's tools made: a 130-bit number in base 36."""
    iterations: int


_PREVIOUS: Final = "previous_"
TEXT: Final = 0
TEXT_BITS: Final = 130
TEXT_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_TEXT_BYTES_MAX: Final = 26


def shape_of(credential: ScramCredential) -> SaltShape:
    """Return the length of the salt and the iteration count of a credential."""
    salt = credential.salt
    is_text = len(salt) <= _TEXT_BYTES_MAX and not salt.strip(TEXT_DIGITS.encode())
    return SaltShape(TEXT if is_text else len(salt), credential.iterations)


def salted_password(kind: ScramHash, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which the client's proof is computed; the computation takes milliseconds."""
    return pbkdf2_hmac(kind.function, password.encode("utf-8"), salt, iterations)


def credential_of(kind: ScramHash, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the verifier for a salted password."""
    client_key = digest(salted, b"Client Key", kind.function)
    server_key = digest(salted, b"Server Key", kind.function)
    return ScramCredential(salt, hashed(kind, client_key), server_key, iterations)


def hashed(kind: ScramHash, key: bytes) -> bytes:
    """Return the hash of a key: H(key) in RFC 5802."""
    return new(kind.function, key).digest()


def format_credential(credential: ScramCredential) -> str:
    """Return the verifier in Kafka's text format.

    A previous password adds three parts at the end, which brokers of earlier versions do not read.
    """
    text = f"salt={_base64(credential.salt)},{_format_keys(credential.keys)},iterations={credential.iterations}"
    previous = credential.previous
    if previous is None:
        return text
    return f"{text},{_format_keys(previous.keys, _PREVIOUS)},{_PREVIOUS}ends_ms={previous.ends_ms}"


def _format_keys(keys: ScramKeys, prefix: str = "") -> str:
    return f"{prefix}stored_key={_base64(keys.stored_key)},{prefix}server_key={_base64(keys.server_key)}"


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def parse_credential(text: str) -> ScramCredential:
    """Parse the text of a verifier. Raise ValueError, with a message that does not contain the text."""
    try:
        parts = dict(each.split("=", 1) for each in text.split(","))
        keys, salt = _parse_keys(parts), b64decode(parts["salt"], validate=True)
        ends = parts.get(f"{_PREVIOUS}ends_ms")
        previous = None if ends is None else PreviousPassword(_parse_keys(parts, _PREVIOUS), int(ends))
        return ScramCredential(salt, keys.stored_key, keys.server_key, int(parts["iterations"]), previous)
    except (ValueError, KeyError):
        raise ValueError("a SCRAM verifier must be salt=,stored_key=,server_key=,iterations=") from None


def _parse_keys(parts: Mapping[str, str], prefix: str = "") -> ScramKeys:
    stored_key, server_key = (
        b64decode(parts[f"{prefix}{name}"], validate=True) for name in ("stored_key", "server_key")
    )
    return ScramKeys(stored_key, server_key)


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


OptionalTexts = Mapping[str, str | None]
_SEALED: Final = "sealed:"
"""The prefix of an encrypted password."""
_CONFIG_KEY: Final = "config-key"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


class StoredPasswords:
    """The encryption of passwords in dynamic configs, with one key of the cluster, created or read at its first use."""

    def __init__(
        self, open_secrets: Callable[[], Awaitable[SecretStore]], random_bytes: Callable[[int], bytes]
    ) -> None:
        self._open_secrets = open_secrets
        self._random_bytes = random_bytes
        self._cipher: AESGCM | None = None
        self._unreadable: set[str] = set()

    async def sealed(self, broker: str, configs: OptionalTexts) -> OptionalTexts:
        """Return a broker's settings with each password encrypted for the metadata.

        Raise StoreUnavailable if the encryption key cannot be read.
        """
        passwords = {name: text for name, text in configs.items() if text and _is_password(name)}
        if not passwords:
            return configs
        cipher = await self._key()
        return {**configs, **{name: self._seal(cipher, broker, name, text) for name, text in passwords.items()}}

    async def opened(self, config: BrokerConfig) -> BrokerConfig:
        """Return the config with the passwords in `broker_overrides` decrypted.

        Leave out passwords that cannot be decrypted. Raise StoreUnavailable if the encryption key cannot be read.
        """
        own = config.broker_overrides
        sealed = {name: text for name, text in own.items() if text.startswith(_SEALED) and _is_password(name)}
        if not sealed:
            return config
        cipher, broker = await self._key(), str(config.broker_id)
        found = {name: self._open(cipher, broker, name, text) for name, text in sealed.items()}
        usable = {name: text for name, text in {**own, **found}.items() if text is not None}
        return config.with_usable(usable, config.cluster_overrides).config

    def _seal(self, cipher: "AESGCM", broker: str, name: str, text: str) -> str:
        nonce = self._random_bytes(_NONCE_BYTES)
        return _SEALED + b64encode(nonce + cipher.encrypt(nonce, text.encode(), _owner(broker, name))).decode()

    def _open(self, cipher: "AESGCM", broker: str, name: str, text: str) -> str | None:
        from cryptography.exceptions import InvalidTag

        try:
            data = b64decode(text.removeprefix(_SEALED))
            return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], _owner(broker, name)).decode()
        except (ValueError, InvalidTag):
            if text not in self._unreadable:
                self._unreadable.add(text)
                log.error("the password %s cannot be decrypted: it was encrypted with another key; set it again", name)
            return None

    async def _key(self) -> "AESGCM":
        # The imports are in functions because cryptography takes 9 MB, and few brokers have such passwords.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if self._cipher is None:
            store = await self._open_secrets()
            try:
                kept = await store.create(_CONFIG_KEY, msgspec.json.encode(self._random_bytes(_KEY_BYTES).hex()))
            finally:
                await store.close()
            self._cipher = AESGCM(bytes.fromhex(msgspec.json.decode(kept, type=str)))
        return self._cipher


def _is_password(name: str) -> bool:
    definition = broker_definition(name)
    return definition is not None and definition.sensitive


def _owner(broker: str, name: str) -> bytes:
    """Return the associated data that binds an encrypted password to its broker and setting."""
    return f"{broker}/{name}".encode()
