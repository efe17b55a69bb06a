"""The keystore and truststore of a listener, read from PEM or PKCS12, and converted to PEM for OpenSSL."""

import re
from typing import Final, NamedTuple

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

from barnabas_core.config.listeners import ListenerSecurity
from barnabas_web.visitors import FILE_BYTES_MAX, content_of_file

_PEM: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")
"""The regular expression of a PEM block; a match takes linear time, whatever the text."""
_CERTIFICATE: Final = ("CERTIFICATE",)
_KEYS: Final = ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY")
_JKS_MAGIC: Final = bytes.fromhex("feedfeed")
_NO_KEY: Final = (
    "the PEM keystore must contain one private key in PKCS#8 format (openssl pkcs8 -topk8) and its certificate chain"
)
_NO_TRUST: Final = "the PEM truststore must contain at least one certificate"


class Keystore(NamedTuple):
    """A private key, which is not encrypted, and its certificate chain, both as PEM."""

    key: bytes
    chain: bytes

    def __repr__(self) -> str:
        """Return a text that does not reveal the key."""
        return "Keystore(...)"


class Stores:
    """The keystore and the truststore of one listener. The methods raise InvalidConfig, which names the setting."""

    def __init__(self, security: ListenerSecurity) -> None:
        self._security = security

    def keystore(self) -> Keystore | None:
        """Return the keystore; None if the listener has none."""
        if self._security.value("ssl.keystore.type") == "PEM":
            return self._pem_keystore()
        loaded = self._pkcs12("keystore", needs_password=True)
        if loaded is None:
            return None
        if loaded.key is None or loaded.cert is None:
            raise self._security.invalid(
                "ssl.keystore.location", "the keystore must contain a private key and its certificate"
            )
        key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        certificates = (loaded.cert, *loaded.additional_certs)
        return Keystore(key, b"".join(each.certificate.public_bytes(Encoding.PEM) for each in certificates))

    def truststore(self) -> str | None:
        """Return the trusted certificates as PEM; None if the listener has no truststore."""
        if self._security.value("ssl.truststore.type") == "PEM":
            return self._pem_truststore()
        loaded = self._pkcs12("truststore", needs_password=False)
        if loaded is None:
            return None
        certificates = (*([loaded.cert] if loaded.cert else []), *loaded.additional_certs)
        if not certificates:
            raise self._security.invalid(
                "ssl.truststore.location", "the truststore must contain at least one certificate"
            )
        return "".join(each.certificate.public_bytes(Encoding.PEM).decode() for each in certificates)

    def files(self) -> list[str]:
        """Return the paths of the keystore and truststore files."""
        found = (self._security.text(f"ssl.{store}.location") for store in ("keystore", "truststore"))
        return [location for location in found if location is not None]

    def _pem_keystore(self) -> Keystore | None:
        key, chain = self._security.text("ssl.keystore.key"), self._security.text("ssl.keystore.certificate.chain")
        setting = "ssl.keystore.location"
        if key is not None or chain is not None:
            if self._security.text(setting) is not None:
                raise self._security.invalid(
                    setting, "a keystore file must not be set together with ssl.keystore.key; remove one setting"
                )
            setting = "ssl.keystore.key"
            if key is None or chain is None:
                raise self._security.invalid(
                    setting, "the private key must be set together with ssl.keystore.certificate.chain"
                )
        elif self._security.text(setting) is None:
            return None
        else:
            key = chain = self._read(setting).decode("ascii", "replace")
        if self._security.text("ssl.keystore.password") is not None:
            raise self._security.invalid(
                "ssl.keystore.password",
                "a PEM keystore cannot have a password; set the password of the private key in ssl.key.password",
            )
        keys, certificates = _blocks(key, _KEYS), _blocks(chain, _CERTIFICATE)
        if len(keys) != 1 or not certificates:
            raise self._security.invalid(setting, _NO_KEY)
        return Keystore(self._decrypted(keys[0].encode(), setting), "".join(certificates).encode())

    def _decrypted(self, key: bytes, setting: str) -> bytes:
        password = self._security.text("ssl.key.password")
        if b"ENCRYPTED" in key and password is None:
            raise self._security.invalid(
                "ssl.key.password", "the password of the private key must be set, because the key is encrypted"
            )
        try:
            loaded = load_pem_private_key(key, password.encode() if password and b"ENCRYPTED" in key else None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise self._security.invalid(setting, f"the private key cannot be read: {error}") from None
        return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def _pem_truststore(self) -> str | None:
        text, setting = self._security.text("ssl.truststore.certificates"), "ssl.truststore.certificates"
        if text is None:
            setting = "ssl.truststore.location"
            if self._security.text(setting) is None:
                return None
            text = self._read(setting).decode("ascii", "replace")
        elif self._security.text("ssl.truststore.location") is not None:
            raise self._security.invalid(
                "ssl.truststore.location",
                "a truststore file must not be set together with ssl.truststore.certificates; remove one setting",
            )
        certificates = _blocks(text, _CERTIFICATE)
        if not certificates:
            raise self._security.invalid(setting, _NO_TRUST)
        return "".join(certificates)

    def _pkcs12(self, store: str, *, needs_password: bool) -> PKCS12KeyAndCertificates | None:
        setting = f"ssl.{store}.location"
        location = self._security.text(setting)
        if location is None:
            return None
        password = self._security.text(f"ssl.{store}.password")
        if needs_password and password is None:
            raise self._security.invalid(f"ssl.{store}.password", f"the password of the file {location} must be set")
        data = self._read(setting)
        if data.startswith(_JKS_MAGIC):
            command = f"keytool -importkeystore -srckeystore {location} -destkeystore {location}.p12"
            raise self._security.invalid(
                setting, f"a JKS file is not supported; convert it to PKCS12 with {command} -deststoretype PKCS12"
            )
        try:
            return pkcs12.load_pkcs12(data, None if password is None else password.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise self._security.invalid(
                setting, f"the file cannot be read with ssl.{store}.password: {error}"
            ) from None

    def _read(self, setting: str) -> bytes:
        try:
            content = content_of_file(self._security.text(setting) or "")
        except OSError as error:
            raise self._security.invalid(setting, f"the file cannot be read: {error.strerror}") from None
        if content is None or len(content) > FILE_BYTES_MAX:
            raise self._security.invalid(
                setting, f"the location must be a regular file of at most {FILE_BYTES_MAX} bytes"
            )
        return content


def _blocks(text: str, kinds: tuple[str, ...]) -> list[str]:
    """Return the PEM blocks whose label is in `kinds`.

    Line breaks are inserted, because a setting may hold a PEM block on one line.
    """
    found = (match for match in _PEM.finditer(text) if match[1] in kinds)
    return [f"-----BEGIN {each[1]}-----\n{_lines(each[2])}-----END {each[1]}-----\n" for each in found]


def _lines(base64: str) -> str:
    joined = "".join(base64.split())
    return "".join(f"{joined[start : start + 64]}\n" for start in range(0, len(joined), 64))
