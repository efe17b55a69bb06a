"""The TLS contexts of a broker's listeners, and of its links to other brokers, from the stores in its settings.

The subject of a certificate becomes the name of the principal, in the format of Java (RFC 2253). The bytes that OpenSSL
has verified are parsed directly, because stricter parsers reject names that real authorities issue.
"""

import logging
import os
import re
import ssl
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

from barnabas_broker.handlers.channel import ANONYMOUS
from barnabas_broker.server.tls_stream import CertificateRefused, ServerTls
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig
from barnabas_core.config.listeners import ListenerSecurity, PrincipalRule, name_by_rules, parse_principal_rules
from barnabas_core.config.security_definitions import RELOADED, STRONG, TLS_1_2_SUITES, TLS_1_3_SUITES
from barnabas_web.visitors import FILE_BYTES_MAX, content_of_file, mark_of_file

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


_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1B: "ascii", 0x1E: "utf-16-be"}
"""The encodings of ASN.1 string types by their tags."""
_ESCAPED: Final = ',=+<>#;"\\'


_VERSION: Final = 0xA0
"""The ASN.1 tag of the field with a certificate's version; certificates of version 1 lack the field."""
_SUBJECT: Final = 4
"""The index of the subject among the fields after the version: serial number, algorithm, issuer, validity, subject."""


def subject_of(certificate_der: bytes) -> bytes:
    """Return the DER-encoded Name of a certificate's subject."""
    ((_, certificate, _),) = _elements(certificate_der)
    _, to_be_signed, _ = next(_elements(certificate))
    return [whole for tag, _, whole in _elements(to_be_signed) if tag != _VERSION][_SUBJECT]


def rfc2253(name_der: bytes) -> str:
    """Return a DER-encoded Name as text, the last attribute first; types without a keyword become OID=#DER."""
    ((_, names, _),) = _elements(name_der)
    parts = ["+".join(map(_attribute, _elements(part))) for _, part, _ in _elements(names)]
    return ",".join(reversed(parts))


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole encoding of each DER element in a sequence of elements."""
    position = 0
    while position < len(der):
        start, tag, length = position, der[position], der[position + 1]
        position += 2
        if length > 0x7F:
            size = length & 0x7F
            length = int.from_bytes(der[position : position + size], "big")
            position += size
        yield tag, der[position : position + length], der[start : position + length]
        position += length


def _attribute(element: tuple[int, bytes, bytes]) -> str:
    (_, oid, _), (tag, content, whole) = _elements(element[1])
    name = _oid(oid)
    keyword, encoding = _KEYWORDS.get(name), _ENCODINGS.get(tag)
    if keyword is None or encoding is None:
        return f"{keyword or name}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode(encoding, 'replace'))}"


def _oid(content: bytes) -> str:
    numbers, number = [], 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    inner = text.strip(" ")
    leading = len(text) - len(text.lstrip(" ")) if inner else len(text)
    trailing = len(text) - leading - len(inner)
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in inner)
    return "\\ " * leading + escaped + "\\ " * trailing


log = logging.getLogger(__name__)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsOfListener(NamedTuple):
    """The TLS contexts of one listener: for its clients, and for links to other brokers."""

    server: ServerTls
    client: ssl.SSLContext
    certificate: bytes
    """The listener's certificate and its chain, as PEM."""


def tls_of_listener(security: ListenerSecurity) -> TlsOfListener:
    """Return the TLS contexts of a listener. Raises InvalidConfig if a TLS setting is invalid."""
    stores = Stores(security)
    keystore, trusted = stores.keystore(), stores.truststore()
    if keystore is None:
        wanted = (
            "a keystore must be set, because TLS needs a certificate: set ssl.keystore.location, or set "
            "ssl.keystore.type=PEM with ssl.keystore.key and ssl.keystore.certificate.chain"
        )
        raise security.invalid("ssl.keystore.location", wanted)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = _client_auth(security, trusted)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = security.value("ssl.endpoint.identification.algorithm") != ""
    for context in (server, client):
        _protect(context, security)
        _show(context, keystore, security)
        if trusted is not None:
            _trust(context, trusted, security)
    if trusted is None:
        client.load_default_certs()
    return TlsOfListener(ServerTls(server, partial(principal_of, rules=_rules(security))), client, keystore.chain)


def _client_auth(security: ListenerSecurity, trusted: str | None) -> ssl.VerifyMode:
    """Return whether the certificate of a client is required, requested or not requested.

    On a listener with SASL, `ssl.client.auth` is ignored unless it is set with the prefix of the listener.
    """
    setting = "ssl.client.auth"
    is_own = security.setting(setting) != setting
    mode = _CLIENT_AUTH[str(security.value(setting))] if is_own or not security.protocol.has_sasl else ssl.CERT_NONE
    if mode is not ssl.CERT_NONE and trusted is None:
        wanted = f"a truststore must be set, because {security.setting(setting)} asks clients for certificates"
        raise security.invalid("ssl.truststore.location", wanted)
    return mode


def _protect(context: ssl.SSLContext, security: ListenerSecurity) -> None:
    versions = security.value("ssl.enabled.protocols")
    suites = security.value("ssl.cipher.suites")
    assert isinstance(versions, tuple), "ssl.enabled.protocols must be a list"
    assert isinstance(suites, tuple), "ssl.cipher.suites must be a list"
    unknown = sorted(set(suites) - TLS_1_2_SUITES.keys() - TLS_1_3_SUITES)
    if unknown:
        allowed = (
            f"the cipher suite {unknown[0]} is not supported; allowed: "
            f"{', '.join((*TLS_1_2_SUITES, *sorted(TLS_1_3_SUITES)))}"
        )
        raise security.invalid("ssl.cipher.suites", allowed)
    if 0 < len(TLS_1_3_SUITES.intersection(suites)) < len(TLS_1_3_SUITES):
        allowed = (
            f"the list must have all cipher suites of TLS 1.3 or none of them: {', '.join(sorted(TLS_1_3_SUITES))}"
        )
        raise security.invalid("ssl.cipher.suites", allowed)
    older = [TLS_1_2_SUITES[each] for each in suites if each in TLS_1_2_SUITES]
    usable = {
        "TLSv1.2": "TLSv1.2" in versions and bool(older or not suites),
        "TLSv1.3": "TLSv1.3" in versions and (not suites or not TLS_1_3_SUITES.isdisjoint(suites)),
    }
    spoken = [_VERSIONS[version] for version, is_usable in usable.items() if is_usable]
    if not spoken:
        allowed = "no TLS version in ssl.enabled.protocols has a suite in ssl.cipher.suites; add a version or a suite"
        raise security.invalid("ssl.enabled.protocols", allowed)
    context.minimum_version, context.maximum_version = min(spoken), max(spoken)
    context.set_ciphers(":".join(older) or STRONG)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE


def _show(context: ssl.SSLContext, keystore: Keystore, security: ListenerSecurity) -> None:
    """Load the key and the certificates through a file in memory, because OpenSSL only reads files."""
    file = os.memfd_create("keystore")
    try:
        os.write(file, keystore.key + keystore.chain)
        context.load_cert_chain(f"/proc/self/fd/{file}", password="")
    except (ssl.SSLError, OSError) as error:
        raise security.invalid("ssl.keystore.location", f"the key or a certificate cannot be used: {error}") from None
    finally:
        os.close(file)


def _trust(context: ssl.SSLContext, trusted: str, security: ListenerSecurity) -> None:
    try:
        context.load_verify_locations(cadata=trusted)
    except ssl.SSLError as error:
        raise security.invalid("ssl.truststore.location", f"the trusted certificates cannot be used: {error}") from None


def _rules(security: ListenerSecurity) -> tuple[PrincipalRule, ...]:
    try:
        return parse_principal_rules(str(security.value("ssl.principal.mapping.rules")))
    except ValueError as error:
        raise security.invalid("ssl.principal.mapping.rules", str(error)) from None


def principal_of(certificate: bytes | None, rules: tuple[PrincipalRule, ...]) -> str:
    """Return the principal of a client certificate, ANONYMOUS without one.

    Raises CertificateRefused if no mapping rule matches.
    """
    if certificate is None:
        return ANONYMOUS
    dn = rfc2253(subject_of(certificate))
    name = name_by_rules(dn, rules)
    if name is None:
        raise CertificateRefused(
            f"no rule of ssl.principal.mapping.rules matches the client certificate's subject {dn[:200]!r}"
        )
    return f"User:{name}"


class TlsContexts:
    """The current TLS contexts of all listeners with TLS; `refresh` replaces them."""

    def __init__(self, config: BrokerConfig) -> None:
        """Make the contexts of all listeners. Raises InvalidConfig with all problems."""
        self._inter_broker = config.listeners.inter_broker
        self._of: dict[str, TlsOfListener] = {}
        self._marks: dict[str, object] = {}
        problems: list[ConfigProblem] = []
        for endpoint in config.listeners.bound:
            security = config.listener_security(endpoint.name)
            if security.protocol.has_tls:
                try:
                    self._marks[endpoint.name] = _mark(security)
                    self._of[endpoint.name] = tls_of_listener(security)
                except InvalidConfig as error:
                    problems += error.problems
        if problems:
            raise InvalidConfig(problems)

    def server(self, listener_name: str) -> ServerTls | None:
        """Return the current context of a listener; None without TLS."""
        found = self._of.get(listener_name)
        return None if found is None else found.server

    def between_brokers(self) -> ssl.SSLContext | None:
        """Return the current context for links to other brokers; None without TLS."""
        found = self._of.get(self._inter_broker)
        return None if found is None else found.client

    def check(self, config: BrokerConfig) -> None:
        """Check changed TLS settings and files, which handshakes do not use yet.

        Raises InvalidConfig if the settings or the files are invalid.
        """
        for name in self._of:
            security = config.listener_security(name)
            if _mark(security) != self._marks[name]:
                self._replacement(security)

    def refresh(self, config: BrokerConfig) -> None:
        """Use current settings and files for new handshakes; a listener with invalid settings keeps its contexts."""
        for name in self._of:
            security = config.listener_security(name)
            mark = _mark(security)
            if mark == self._marks[name]:
                continue
            self._marks[name] = mark
            try:
                self._of[name] = self._replacement(security)
            except InvalidConfig as error:
                log.error(
                    "listener %s keeps its old certificates, because the new settings or files are invalid: %s",
                    name,
                    error,
                )
            else:
                log.info("listener %s now uses the new certificates", name)

    def _replacement(self, security: ListenerSecurity) -> TlsOfListener:
        made = tls_of_listener(security)
        check_replacement(self._of[security.name].certificate, made.certificate, security)
        return made


def _mark(security: ListenerSecurity) -> object:
    """Return a value that changes when the settings or files change."""
    texts = tuple(security.text(config) for config in sorted(RELOADED))
    return texts, tuple(map(mark_of_file, Stores(security).files()))


def check_replacement(before: bytes, after: bytes, security: ListenerSecurity) -> None:
    """Raise InvalidConfig if the subject changes or alternative names are lost, unless settings allow it (KIP-978)."""
    try:
        old, new = map(x509.load_pem_x509_certificate, (before, after))
    except ValueError as error:
        raise security.invalid(
            "ssl.keystore.location", f"the new certificate cannot be compared to the old one: {error}"
        ) from None
    if old.subject != new.subject and not security.value("ssl.allow.dn.changes"):
        wanted = (
            f"the new certificate has the subject {new.subject.rfc4514_string()}, but the old certificate has "
            f"{old.subject.rfc4514_string()}"
        )
        raise security.invalid("ssl.keystore.location", f"{wanted}; ssl.allow.dn.changes=false forbids this")
    lacking = sorted(_alternative_names(old) - _alternative_names(new))
    if lacking and not security.value("ssl.allow.san.changes"):
        wanted = (
            f"the new certificate lacks the alternative names {', '.join(lacking)}; "
            "ssl.allow.san.changes=false forbids this"
        )
        raise security.invalid("ssl.keystore.location", wanted)


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
