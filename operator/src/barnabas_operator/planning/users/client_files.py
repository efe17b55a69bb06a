"""The files in the Secret of a user: credentials and client settings."""

import json
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_operator.planning.brokers.local_security import PLAIN, login_of
from barnabas_operator.planning.users.declared_rights import mechanism_of
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.user import User

PASSWORD: Final = "password"
JAAS: Final = "sasl.jaas.config"
AUTHORITY: Final = "ca.crt"
CERTIFICATE: Final = "user.crt"
KEY: Final = "user.key"
KEYSTORE: Final = "user.p12"
KEYSTORE_PASSWORD: Final = "user.password"
_PLAIN: Final = "plain"


class Endpoint(NamedTuple):
    """The listener that clients of a user connect to; `fits` is True if it accepts the user's credentials."""

    bootstrap: str
    is_tls: bool
    fits: bool
    mechanism: str | None = None
    """The SASL mechanism of the user's clients; None if the user has no password."""


class Proof(NamedTuple):
    """The credentials of a client, and the authorities of the brokers."""

    authority: str = ""
    """The certificates of the brokers' authority in PEM format, or empty if there is no authority."""
    password: str = ""
    certificate: str = ""
    key: str = ""
    keystore: bytes = b""
    keystore_password: str = ""


def endpoint_of(cluster: Cluster, user: User, bootstrap: str) -> Endpoint:
    """Return the first listener with the user's authentication type.

    Without one, return the first listener with the authentication type `plain` if the user has a password, or else the
    first listener. `bootstrap` is used while the status of the Cluster has no address for the listener.
    """
    wanted, mechanism = user.spec.authentication.type, mechanism_of(user)
    listeners, accepted = cluster.spec.listeners, (wanted, *((_PLAIN,) if mechanism is not None else ()))
    fitting = [each for kind in accepted for each in listeners if _type_of(each) == kind]
    listener: Listener = (*fitting, *listeners)[0]
    known = cluster.status.listeners if cluster.status is not None else ()
    addresses = {each.name: each.bootstrap_servers for each in known}
    used = PLAIN if fitting and _type_of(listener) == _PLAIN else mechanism
    return Endpoint(addresses.get(listener.name) or bootstrap, listener.tls, bool(fitting), used)


def _type_of(listener: Listener) -> str | None:
    return listener.authentication.type if listener.authentication is not None else None


def client_files(user: User, endpoint: Endpoint, proof: Proof, folder: str = "") -> dict[str, bytes]:
    """Return the files of a user's Secret by name; `folder` is the prefix of file names in kcat.conf."""
    files = {AUTHORITY: proof.authority, CERTIFICATE: proof.certificate, KEY: proof.key}
    files |= {PASSWORD: proof.password, KEYSTORE_PASSWORD: proof.keystore_password}
    if proof.password:
        files[JAAS] = login_of(str(endpoint.mechanism), user.username, proof.password)
    inline = dict(_librdkafka(user, endpoint, proof))
    files |= {
        "client.properties": _java_text(dict(_java(user, endpoint, proof))),
        "kcat.conf": "".join(f"{name}={value}\n" for name, value in _in_files(inline, folder).items()),
        "librdkafka.json": json.dumps(inline, indent=2) + "\n",
    }
    found = {name: text.encode() for name, text in files.items() if text}
    return {**found, KEYSTORE: proof.keystore} if proof.keystore else found


def _protocol(endpoint: Endpoint, proof: Proof) -> str:
    return ("SASL_" if proof.password else "") + ("SSL" if endpoint.is_tls or proof.key else "PLAINTEXT")


def _java(user: User, endpoint: Endpoint, proof: Proof) -> Iterator[tuple[str, str]]:
    """Yield the Java client settings; certificates are inline, so that the file can be moved."""
    yield "bootstrap.servers", endpoint.bootstrap
    yield "security.protocol", _protocol(endpoint, proof)
    if proof.password:
        yield "sasl.mechanism", str(endpoint.mechanism)
        yield "sasl.jaas.config", login_of(str(endpoint.mechanism), user.username, proof.password)
    if proof.authority and (endpoint.is_tls or proof.key):
        yield "ssl.truststore.type", "PEM"
        yield "ssl.truststore.certificates", proof.authority
    if proof.key:
        yield "ssl.keystore.type", "PEM"
        yield "ssl.keystore.certificate.chain", proof.certificate
        yield "ssl.keystore.key", proof.key


def _java_text(settings: Mapping[str, str]) -> str:
    """Return the settings as a properties file, with backslashes and newlines escaped."""
    return "".join(
        f"{name}={value.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}\n"
        for name, value in settings.items()
    )


def _librdkafka(user: User, endpoint: Endpoint, proof: Proof) -> Iterator[tuple[str, str]]:
    yield "bootstrap.servers", endpoint.bootstrap
    yield "security.protocol", _protocol(endpoint, proof)
    if proof.password:
        yield "sasl.mechanisms", str(endpoint.mechanism)
        yield "sasl.username", user.username
        yield "sasl.password", proof.password
    if proof.authority and (endpoint.is_tls or proof.key):
        yield "ssl.ca.pem", proof.authority
    if proof.key:
        yield "ssl.certificate.pem", proof.certificate
        yield "ssl.key.pem", proof.key


def _in_files(settings: Mapping[str, str], folder: str) -> Mapping[str, str]:
    """Return the librdkafka settings with file names instead of inline certificates."""
    names = {"ssl.ca": AUTHORITY, "ssl.certificate": CERTIFICATE, "ssl.key": KEY}
    places = {f"{name}.pem": (f"{name}.location", f"{folder}{file}") for name, file in names.items()}
    return dict(places.get(name, (name, value)) for name, value in settings.items())
