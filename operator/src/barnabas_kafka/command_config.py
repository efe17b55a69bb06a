"""Read a file of Kafka's client properties (`--command-config`) into settings of kafka-python.

An unknown property about security is refused, because a user could wrongly rely on its effect. Other unknown properties
are ignored.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_core.config.definitions import MalformedProperties, parse_properties
from barnabas_core.config.listeners import InvalidJaas, parse_jaas
from barnabas_kafka.connection import OneToken
from barnabas_kafka.security import (
    IN_CLEAR,
    MECHANISMS,
    Credentials,
    SecurityFileError,
    load_pem,
    trusting,
)

PROTOCOL: Final = "security.protocol"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISM: Final = "sasl.mechanism"
JAAS: Final = "sasl.jaas.config"
TRUST_TYPE: Final = "ssl.truststore.type"
TRUST: Final = "ssl.truststore.location"
KEY_TYPE: Final = "ssl.keystore.type"
KEY: Final = "ssl.keystore.location"
TRUST_PEM: Final = "ssl.truststore.certificates"
KEY_PEM: Final = "ssl.keystore.key"
CHAIN_PEM: Final = "ssl.keystore.certificate.chain"
"""The properties with a PEM text in place of a file (KIP-651)."""
KEY_PASSWORD: Final = "ssl.key.password"
HOST_NAMES: Final = "ssl.endpoint.identification.algorithm"
BEARER: Final = "OAUTHBEARER"
CHECKED_HOST_NAMES: Final = ("https", "")
PEM: Final = "PEM"
CERTIFICATE: Final = "BEGIN CERTIFICATE"
PRIVATE_KEY: Final = "PRIVATE KEY"
OF_TRUST: Final = (TRUST_TYPE, TRUST, TRUST_PEM)
OF_KEY: Final = (KEY_TYPE, KEY, KEY_PEM, CHAIN_PEM, KEY_PASSWORD)
KNOWN: Final = (PROTOCOL, MECHANISM, JAAS, *OF_TRUST, *OF_KEY, HOST_NAMES)
ABOUT_SECURITY: Final = ("security.", "sasl.", "ssl.")

Texts = Mapping[str, str]


class CommandConfig(NamedTuple):
    """The file of client properties, read again for each client, because a password may have changed."""

    file: Path

    @property
    def authenticates(self) -> bool:
        """True if the client authenticates, by SASL or by a certificate.

        Raise SecurityFileError if the file cannot be read.
        """
        found = properties_of(self.file)
        return found.get(PROTOCOL, "").startswith("SASL_") or KEY in found or KEY_PEM in found

    def settings(self) -> Mapping[str, Any]:
        """Return the current settings for a new client. Raise SecurityFileError if the file cannot be used."""
        try:
            return _settings(properties_of(self.file))
        except _Invalid as error:
            raise SecurityFileError(f"{self.file}: {error}") from error


class LoginConfig(NamedTuple):
    """The credentials of a user; the file of client properties has everything else about the connection."""

    file: Path
    mechanism: str
    username: str
    password: str
    """The password; for the mechanism OAUTHBEARER, the token."""

    @property
    def authenticates(self) -> bool:
        """True, because the user logs in by SASL."""
        return True

    def settings(self) -> Mapping[str, Any]:
        """Return the current settings for a new client. Raise SecurityFileError if the file cannot be used."""
        login: dict[str, Any] = {"sasl_mechanism": self.mechanism}
        if self.mechanism == BEARER:
            login["sasl_oauth_token_provider"] = OneToken(self.password)
        else:
            login |= {"sasl_plain_username": self.username, "sasl_plain_password": self.password}
        return {**connection_of(self.file), **login}


def properties_of(file: Path) -> Texts:
    """Return all properties in a file of client properties. Raise SecurityFileError if it cannot be read."""
    try:
        properties = parse_properties(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, MalformedProperties) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise SecurityFileError(f"{file} is not a file with properties of Kafka clients: {why}") from error
    return {key: each.value.strip() for key, each in properties.items()}


def connection_of(file: Path) -> Mapping[str, Any]:
    """Return the protocol and the TLS settings in a file. Raise SecurityFileError if the file cannot be used."""
    try:
        return _connection(properties_of(file))
    except _Invalid as error:
        raise SecurityFileError(f"{file}: {error}") from error


def mechanism_of(file: Path) -> str:
    """Return the SASL mechanism that a file names; empty if it names none. Raise SecurityFileError if it is invalid."""
    try:
        return _one_of(properties_of(file), MECHANISM, (*MECHANISMS, BEARER, ""), "")
    except _Invalid as error:
        raise SecurityFileError(f"{file}: {error}") from error


def add_command_config(parser: argparse.ArgumentParser) -> None:
    """Add the option --command-config to the parser."""
    parser.add_argument(
        "--command-config",
        type=command_config,
        default=IN_CLEAR,
        metavar="FILE",
        help="a file with properties of Kafka clients (security.protocol, sasl.* and ssl.*); default: "
        "no file, so that connections use PLAINTEXT",
    )


def command_config(text: str) -> Credentials:
    """Return the file that the option names. Raise argparse.ArgumentTypeError if the file is invalid."""
    found = CommandConfig(Path(text))
    try:
        found.settings()
    except SecurityFileError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return found


class _Invalid(Exception):
    """The error that a property is invalid; the message has its name, its value (unless secret) and what is allowed."""


def _settings(given: Texts) -> dict[str, Any]:
    found = _connection(given)
    if found["security_protocol"].startswith("SASL_"):
        found |= _sasl(given)
    return found


def _connection(given: Texts) -> dict[str, Any]:
    for key in given:
        if key.startswith(ABOUT_SECURITY) and key not in KNOWN:
            raise _Invalid(f"{key} is not supported; the supported properties for security are {', '.join(KNOWN)}")
    protocol = _one_of(given, PROTOCOL, PROTOCOLS, PROTOCOLS[0])
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        found |= _tls(given)
    return found


def _one_of(given: Texts, key: str, allowed: tuple[str, ...], default: str | None = None) -> str:
    value = given.get(key, default)
    if value is None:
        raise _Invalid(f"{key} is missing; allowed: {', '.join(allowed)}")
    if value not in allowed:
        raise _Invalid(f"{key}={value}; allowed: {', '.join(each or 'an empty value' for each in allowed)}")
    return value


def _sasl(given: Texts) -> dict[str, Any]:
    mechanism = _one_of(given, MECHANISM, MECHANISMS)
    try:
        entry = parse_jaas(given.get(JAAS, ""))
    except InvalidJaas as error:
        raise _Invalid(f"{JAAS}: {error}") from error
    if entry.family != mechanism.partition("-")[0]:
        raise _Invalid(
            f"{JAAS} has the login module of {entry.family}, but {MECHANISM}={mechanism} needs the login "
            f"module of that mechanism"
        )
    for option in ("username", "password"):
        if not entry.options.get(option):
            raise _Invalid(f'{JAAS} has no {option}; add {option}="..." before the semicolon')
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": entry.options["username"],
        "sasl_plain_password": entry.options["password"],
    }


def _tls(given: Texts) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ssl_check_hostname": _one_of(given, HOST_NAMES, CHECKED_HOST_NAMES, CHECKED_HOST_NAMES[0]) != ""
    }
    for file, text in ((TRUST, TRUST_PEM), (KEY, KEY_PEM)):
        if file in given and text in given:
            raise _Invalid(f"{file} and {text} must not be set together")
    if TRUST in given:
        _check_pem(given, TRUST_TYPE, TRUST, (CERTIFICATE,))
        found["ssl_cafile"] = given[TRUST]
    if KEY in given:
        _check_pem(given, KEY_TYPE, KEY, (PRIVATE_KEY, CERTIFICATE))
    if TRUST_PEM in given or KEY_PEM in given:
        return {"ssl_context": _context(given, checks_names=found["ssl_check_hostname"])}
    if KEY in given:
        found |= {"ssl_certfile": given[KEY], "ssl_keyfile": given[KEY], "ssl_password": given.get(KEY_PASSWORD, "")}
    return found


def _context(given: Texts, *, checks_names: bool) -> Any:
    """Return the ssl.SSLContext for properties with a PEM text in place of a file."""
    trust = _pem(given, TRUST_TYPE, TRUST, TRUST_PEM)
    try:
        context = trusting(trust)
    except ValueError as error:
        raise _Invalid(f"{TRUST_PEM} must be certificates in PEM: {error}") from error
    key, chain = _pem(given, KEY_TYPE, KEY, KEY_PEM), given.get(CHAIN_PEM, "")
    if KEY_PEM in given and not chain:
        raise _Invalid(f"{CHAIN_PEM} is missing; it must have the certificate of {KEY_PEM}, in PEM")
    try:
        if key:
            load_pem(context, f"{key}\n{chain}", given.get(KEY_PASSWORD, ""))
    except ValueError as error:
        raise _Invalid(f"{KEY_PEM} and {CHAIN_PEM} must be a private key and its certificate: {error}") from error
    context.check_hostname = checks_names
    return context


def _pem(given: Texts, type_key: str, file: str, text: str) -> str:
    """Return the PEM in a property, or in the file that a property names; empty if neither is set."""
    if text in given:
        _check_type(given, type_key)
        return given[text]
    return Path(given[file]).read_text(encoding="utf-8") if file in given else ""


def _check_pem(given: Texts, type_key: str, key: str, parts: tuple[str, ...]) -> None:
    _check_type(given, type_key)
    try:
        text = Path(given[key]).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise _Invalid(
            f"{key}={given[key]} cannot be read: {error.strerror}; the file must have {' and '.join(parts)}"
        ) from error
    if any(part not in text for part in parts):
        raise _Invalid(f"{key}={given[key]} must be a PEM file with {' and '.join(parts)}")


def _check_type(given: Texts, key: str) -> None:
    value = given.get(key, "JKS, the default")
    if value != PEM:
        how = (
            "`keytool -importkeystore -deststoretype PKCS12` and then `openssl pkcs12 -nodes` convert a keystore to PEM"
        )
        raise _Invalid(f"{key}={value}; allowed: {PEM}; {how}")
