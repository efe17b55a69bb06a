"""The TLS contexts of a broker's listeners, and of its links to other brokers."""

import logging
import os
import ssl
from functools import partial
from typing import Final, NamedTuple

from cryptography import x509

from barnabas_broker.app.tls_stores import Keystore, Stores
from barnabas_broker.handlers.channel import ANONYMOUS
from barnabas_broker.server.tls_stream import CertificateRefused, ServerTls
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig
from barnabas_core.config.listeners import ListenerSecurity, PrincipalRule, name_by_rules, parse_principal_rules
from barnabas_core.config.security_definitions import RELOADED, STRONG, TLS_1_2_SUITES, TLS_1_3_SUITES
from barnabas_core.distinguished_name import rfc2253, subject_of
from barnabas_web.visitors import mark_of_file

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
