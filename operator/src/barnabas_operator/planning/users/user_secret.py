"""The Secret of a user (its ownership, password and annotations), and the status of a User."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from msgspec.structs import replace

from barnabas_operator.certificates import Authority, Pem, certificates_in, is_current, pem_of
from barnabas_operator.planning.brokers.authorities import signer_first
from barnabas_operator.planning.brokers.broker_security import PLAIN, login_of
from barnabas_operator.planning.conditions import RESOURCE_CONFLICT, Refusal, conditions_of, time_text, utc_moment
from barnabas_operator.planning.object_names import EventText
from barnabas_operator.planning.users.user_plan import (
    REVOKE,
    KnownPassword,
    SetPassword,
    UserPlan,
    UserStep,
    describe,
    has_salt,
    mechanism_of,
    overlap_s,
)
from barnabas_operator.resources.cluster import Cluster, Listener
from barnabas_operator.resources.kind import merge_conditions
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.security import CertificateStatus
from barnabas_operator.resources.user import User, UserStatus

NO_AUTHORITY: Final = "NoAuthority"


class ClientsAuthority(NamedTuple):
    """The authority for a Cluster's users: the key that signs, and the certificates that brokers trust, as PEM.

    The first certificate belongs to the key.
    """

    key: str
    trusted: str


class UserCertificate(NamedTuple):
    """A user's certificate and key in PEM format, and a PKCS12 keystore with both and the trusted certificates."""

    certificate: str
    key: str
    keystore: bytes
    keystore_password: str


def clients_authority(key: str, trusted: str) -> ClientsAuthority:
    """Return the authority with `trusted` reordered, so that the certificate of the private key `key` comes first.

    The order is unchanged if `key` or `trusted` is invalid, or if no certificate belongs to `key`.
    """
    try:
        return ClientsAuthority(key, pem_of(signer_first(key, certificates_in(trusted))))
    except ValueError:
        return ClientsAuthority(key, trusted)


def is_due(certificate: str, username: str, authority: ClientsAuthority, now_ms: int) -> bool:
    """Return whether the user needs a new certificate.

    A certificate is replaced at two thirds of its lifetime, when the authority signs with a new key, and if it is
    invalid or names another user.
    """
    try:
        (found,) = certificates_in(certificate)
        trusted = certificates_in(authority.trusted)
    except ValueError:
        return True
    names = [each.value for each in found.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    return names != [username] or not is_current(found, trusted[0], utc_moment(now_ms))


def issue(username: str, authority: ClientsAuthority, now_ms: int, password: str) -> UserCertificate:
    """Return a new certificate for the user, signed by the authority. Raise ValueError if the authority is invalid."""
    pem = Authority(Pem(authority.key, authority.trusted), utc_moment(now_ms)).issue(username)
    key = load_pem_private_key(pem.key.encode(), password=None)
    assert isinstance(key, EllipticCurvePrivateKey), "Authority.issue must return an elliptic curve key"
    (certificate,), trusted = certificates_in(pem.certificate), certificates_in(authority.trusted)
    encryption = BestAvailableEncryption(password.encode())
    keystore = serialize_key_and_certificates(username.encode(), key, certificate, trusted, encryption)
    return UserCertificate(pem.certificate, pem.key, keystore, password)


def no_authority(cluster: str, missing: str) -> Refusal:
    """Return the Refusal for a tls user whose certificate cannot be signed; `missing` says what is missing."""
    why = f"Cluster {cluster} has no CA for client certificates: {missing}"
    return Refusal(NO_AUTHORITY, f"{why}; set the type of spec.authentication to scram-sha-512")


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


ROTATE: Final = "barnabas.dev/rotate-password"
"""The annotation of a User that requests a new password.

The operator makes a new password if the Secret's annotation of the same name is missing or has another value. The
operator copies the value to the Secret together with the new password.
"""
SALT: Final = "barnabas.dev/password-salt"
"""The annotation of a Secret with a salt.

The password id is a hash of the password with the salt, so that the id does not reveal the password. The salt of the
SCRAM credential is a hash of this salt, because every client can read the salt of SCRAM.
"""
NO_PASSWORD: Final = "NoPassword"
PASSWORD_LENGTH: Final = 32
GIVEN_LENGTH_MAX: Final = 255
_GIVEN: Final = re.compile(rf"[!-~]([ -~]{{0,{GIVEN_LENGTH_MAX - 2}}}[!-~])?")
_ID_LENGTH: Final = 16
_SALT_ID_LENGTH: Final = 8
_SCRAM_SALT_BYTES: Final = 24
NewPassword = Callable[[], str]
"""A function that returns a random password of 32 letters and digits."""


class StoredSecret(NamedTuple):
    """A Secret as it is stored; `is_own` is True if the Secret belongs to the User."""

    data: Mapping[str, bytes]
    marks: Mapping[str, str]
    """The annotations of the Secret."""
    is_own: bool


class GivenPassword(NamedTuple):
    """The password in the Secret that a User refers to, or None if the Secret or its key does not exist."""

    text: str | None


def not_own(user: User) -> Refusal:
    """Return the Refusal to report for a User if the Secret of its name already exists and has another owner."""
    name = user.metadata.name
    why = f"Secret {name} already exists and does not belong to the User"
    return Refusal(RESOURCE_CONFLICT, f"{why}; delete the Secret, or choose another metadata.name for the User")


def password_reference(user: User) -> SecretKeyRef | None:
    """Return the key of the Secret that has the password of the User; None if the password is generated."""
    password = user.spec.authentication.password
    return None if password is None or password.value_from is None else password.value_from.secret_key_ref


def given_password_problem(user: User, given: GivenPassword) -> Refusal | None:
    """Return a Refusal if the password to which a User refers is missing or invalid; None if it is valid."""
    ref = password_reference(user)
    assert ref is not None, "the User must refer to a password"
    where = f"spec.authentication.password: key {ref.key} of Secret {ref.name}"
    if given.text is None:
        return Refusal(NO_PASSWORD, f"{where} is missing; create the key with the password as its value")
    if _GIVEN.fullmatch(given.text) is None:
        allowed = f"1 to {GIVEN_LENGTH_MAX} printable ASCII characters, with no space at the beginning or end"
        return Refusal(NO_PASSWORD, f"{where} cannot be a password; allowed: {allowed}")
    return None


def password_of(user: User, stored: StoredSecret | None, given: GivenPassword | None, new: NewPassword) -> str:
    """Return the password for the Secret: the password that the User refers to, or else the stored password.

    A new password is returned if none is stored, the stored one is invalid, or a rotation is requested.
    """
    kept = _stored_password(stored)
    if kept and waits_for_salt(user, stored):
        return kept
    if given is not None:
        return given.text or ""
    return kept if kept and not asks_for_rotation(user, stored) else new()


def _stored_password(stored: StoredSecret | None) -> str:
    """Return the stored password; empty if there is none that clients can send."""
    kept = stored.data.get(PASSWORD, b"").decode(errors="replace") if stored is not None else ""
    return kept if _GIVEN.fullmatch(kept) is not None else ""


def waits_for_salt(user: User, stored: StoredSecret | None) -> bool:
    """Return whether a new password must wait until the brokers have the stored one with the salt of the Secret.

    An earlier version of the operator gave the brokers the stored password with another salt. It cannot stay valid
    beside a password with the salt of the Secret.
    """
    if stored is None or user.status is None or user.status.password_id is None or not overlap_s(user):
        return False
    _, salt_id = _scram_salt(stored.marks)
    return not has_salt(user, salt_id) and bool(_stored_password(stored))


def asks_for_rotation(user: User, stored: StoredSecret | None) -> bool:
    """Return whether the annotation of the User requests a rotation that has not been done yet."""
    wanted = user.metadata.annotations.get(ROTATE)
    return wanted is not None and stored is not None and stored.marks.get(ROTATE) != wanted


def marks_of(user: User, stored: StoredSecret | None, new: NewPassword) -> dict[str, str]:
    """Return the Secret's annotations: the stored or a new salt, and the User's last request for a new password."""
    salt = stored.marks.get(SALT, "") if stored is not None else ""
    rotated = user.metadata.annotations.get(ROTATE)
    if stored is not None and waits_for_salt(user, stored):
        rotated = stored.marks.get(ROTATE)
    return {SALT: salt or new()} | ({ROTATE: rotated} if rotated is not None else {})


def known_password(password: str, marks: Mapping[str, str]) -> KnownPassword:
    """Return the password with its id, a hash of the password and of the salt in `marks`, and with its SCRAM salt."""
    earlier_id = hashlib.sha256(f"{marks[SALT]}:{password}".encode()).hexdigest()[:_ID_LENGTH]
    return KnownPassword(password, *_scram_salt(marks), earlier_id)


def _scram_salt(marks: Mapping[str, str]) -> tuple[bytes, str]:
    """Return the salt of the SCRAM credential, and the prefix that it gives the id of a password."""
    salt = hashlib.sha256(f"SCRAM salt:{marks.get(SALT, '')}".encode()).digest()[:_SCRAM_SALT_BYTES]
    return salt, hashlib.sha256(salt).hexdigest()[:_SALT_ID_LENGTH] + "-"


DRIFT_UNDONE: Final = "DriftUndone"
PASSWORD_ROTATED: Final = "PasswordRotated"
PASSWORD_REVOKED: Final = "PasswordRevoked"


class PasswordStatus(NamedTuple):
    """The part of a status about passwords, as the brokers have them."""

    password_id: str | None = None
    previous_until: str | None = None
    """The time until which the previous password works, in RFC 3339; None if it does not."""
    revoked: str | None = None


def password_status(user: User, plan: UserPlan, known: KnownPassword | None, now_ms: int) -> PasswordStatus:
    """Return the part of the status about passwords after the steps of a plan."""
    if known is None:
        return PasswordStatus()
    before, revoked = password_of_status(user), user.metadata.annotations.get(REVOKE)
    password_id, until = before.password_id, before.previous_until
    for step in plan.steps:
        if isinstance(step, SetPassword):
            password_id, until = known.password_id, time_text(now_ms + step.overlap_s * 1000)
    works = until is not None and until > time_text(now_ms)
    return PasswordStatus(password_id, until if works else None, revoked)


def password_of_status(user: User) -> PasswordStatus:
    """Return the part of the User's present status about passwords."""
    status = user.status or UserStatus()
    return PasswordStatus(status.password_id, status.previous_password_until, status.revoked)


def user_status(
    user: User,
    problem: Refusal | None,
    now: str,
    *,
    cluster: str | None = None,
    has_secret: bool = False,
    passwords: PasswordStatus = PasswordStatus(),  # noqa: B008 (it cannot change)
    certificate: CertificateStatus | None = None,
    note: str = "",
) -> UserStatus:
    """Return the new status; `problem` is the reason why the User is not ready, or None. `now` is in RFC 3339.

    `cluster` is the Cluster in which the user exists, or None if the User was refused before any change in Kafka.
    `passwords` are those that the brokers have stored. `certificate` is the certificate in the
    Secret. `note` is the message of the condition `Ready` if the User is ready.
    """
    before = user.status or UserStatus()
    conditions = merge_conditions(before.conditions, conditions_of(user, problem, now, note=note))
    status = replace(before, conditions=conditions, observed_generation=user.metadata.generation)
    if cluster is None:
        return status
    return replace(
        status,
        cluster=before.cluster or cluster,
        username=user.username,
        secret=user.metadata.name if has_secret else None,
        password_id=passwords.password_id,
        previous_password_until=passwords.previous_until,
        revoked=passwords.revoked,
        certificate=certificate,
    )


def without_cluster(user: User, why: Refusal, now: str) -> User:
    """Return the User with a status that says why it is not reconciled; `now` is in RFC 3339."""
    return replace(user, status=user_status(user, why, now))


def drift_undone(steps: Sequence[UserStep]) -> EventText | None:
    """Return an Event that lists the changes of another client that `steps` have undone; None without steps."""
    if not steps:
        return None
    return (
        "Normal",
        DRIFT_UNDONE,
        (
            "another client had changed the user, and the operator has undone the change: "
            f"{'; '.join(map(describe, steps))}"
        ),
    )


def password_event(username: str, before: PasswordStatus, after: PasswordStatus) -> EventText | None:
    """Return the Event about a new password, or about the end of the previous one on request; None without either."""
    closed = "connections that used the old password were closed"
    if None not in (before.password_id, after.password_id) and _without_salt(before) != _without_salt(after):
        works = f"the old password works until {after.previous_until}"
        news = works if after.previous_until is not None else closed
        return "Normal", PASSWORD_ROTATED, f"user {username} has a new password; {news}"
    if before.previous_until is not None and after.previous_until is None and before.revoked != after.revoked:
        return "Normal", PASSWORD_REVOKED, f"the previous password of user {username} has ended on request; {closed}"
    return None


def _without_salt(status: PasswordStatus) -> str:
    """Return the id of the password without the prefix that its salt gives it."""
    return (status.password_id or "").rpartition("-")[2]
