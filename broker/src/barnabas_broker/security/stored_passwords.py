"""Encrypt the passwords in dynamic configs, with a key that is stored with the credentials."""

import logging
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from barnabas_broker.metadata.store.metadata_store import SecretStore
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.broker_definitions import broker_definition

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

log = logging.getLogger(__name__)

OptionalTexts = Mapping[str, str | None]
_SEALED: Final = "sealed:"
"""The prefix of an encrypted password."""
_SECRET_KEY: Final = "config-key"
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
                kept = await store.create(_SECRET_KEY, msgspec.json.encode(self._random_bytes(_KEY_BYTES).hex()))
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
