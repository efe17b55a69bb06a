"""The certificate authorities of a Cluster: the content of their Secrets, and the replacement of their keys.

Each authority has two Secrets with the names and keys that Strimzi uses: NAME with `ca.key`, which only the operator
reads, and NAME-cert with `ca.crt`, `ca.p12` and `ca.password` for clients. NAME holds `ca.crt` as well, so that one
write changes the key and its certificate together, and NAME-cert is derived from NAME. The first certificate in
`ca.crt` belongs to the key that signs.

At two thirds of the lifetime of an authority its successor is created (`next.key`). The successor is trusted at once,
and signs after 30 days, when clients have fetched its certificate. The old authority is trusted until it expires.
Annotations of the Secret NAME replace the key sooner, as said below.

The annotations of an authority's Secret that request a new certificate or a new key at once. `force-renew: "true"`
requests a new certificate for the same key. `force-replace: "true"` requests a new key, which is introduced in
three steps, an hour apart. The operator writes the last step into the annotation together with the keys, so that an
operator that restarts continues with the next step:

| annotation | trusted keys | signing key | next step |
|---|---|---|---|
| "true" | old key | old key | the new key is trusted, at once |
| "trusted since TIME" | both keys | old key | the new key signs, after an hour |
| "signs since TIME" | both keys | new key | the old key is removed, after an hour |

As soon as the new key signs, the brokers, the operator and the Users get certificates that are signed with the new key.
If a user removes the annotation, the replacement continues as slowly as the automatic replacement, which begins at two
thirds of the authority's lifetime.

The certificate authority that a user provides in Secrets. The Secret NAME holds the key, as `ca.key` (Strimzi) or
as `tls.key` (cert-manager). The certificates are in `ca.crt` of the Secret NAME-cert, or in `tls.crt` or `ca.crt`
of NAME. If NAME holds the certificates, the operator creates NAME-cert for clients.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Final, Literal, NamedTuple

from cryptography import x509

from barnabas_operator.certificates import (
    EARLY,
    Authority,
    Pem,
    certificates_in,
    has_issued,
    pem_of,
    pkcs12_of,
    renewed_at,
)
from barnabas_operator.planning.conditions import Refusal
from barnabas_operator.planning.object_names import certificate_name

RENEW: Final = "barnabas.dev/force-renew"
REPLACE: Final = "barnabas.dev/force-replace"
ASKED: Final = "true"
DONE: Final = "done"
"""The value of an annotation whose request the operator has carried out; the operator then removes the annotation."""
STEP: Final = dt.timedelta(hours=1)
"""The time between two steps of the replacement of the certificate authority's key.

Clients fetch the new `ca.crt` while the new key is trusted but does not sign yet. Clients fetch their new certificates
while the new key signs but the old key is still trusted.
"""
_TRUSTED: Final = "trusted since "
_SIGNS: Final = "signs since "

DueStep = Literal["trust", "sign", "forget"]


class Asked(NamedTuple):
    """The requests to carry out now: to renew the certificate, and to take the next step in the replacement of the key.

    `marks` are the annotations of the Secret after these requests have been carried out.
    """

    renews: bool
    step: DueStep | None
    marks: Mapping[str, str]


def asked_by(marks: Mapping[str, str], now: dt.datetime) -> Asked:
    """Return the requests in the annotations `marks` that the operator must carry out now."""
    renews, replace = marks.get(RENEW) == ASKED, marks.get(REPLACE, "")
    step = _step(replace, now)
    messages: Mapping[DueStep | None, str] = {
        "trust": f"{_TRUSTED}{_text(now)}",
        "sign": f"{_SIGNS}{_text(now)}",
        "forget": DONE,
        None: replace if replace.startswith((_TRUSTED, _SIGNS)) else "",
    }
    found = {RENEW: DONE if renews else "", REPLACE: messages[step]}
    return Asked(renews, step, {name: value for name, value in found.items() if value})


def _step(replace: str, now: dt.datetime) -> DueStep | None:
    if replace == ASKED:
        return "trust"
    if _is_over(replace, _TRUSTED, now):
        return "sign"
    return "forget" if _is_over(replace, _SIGNS, now) else None


def _is_over(replace: str, since: str, now: dt.datetime) -> bool:
    """True if the annotation value `replace` consists of the prefix `since` and a TIME at least `STEP` ago.

    A TIME that cannot be parsed counts as long ago.
    """
    if not replace.startswith(since):
        return False
    try:
        return now >= dt.datetime.fromisoformat(replace.removeprefix(since)) + STEP
    except (ValueError, TypeError):
        return True


def _text(moment: dt.datetime) -> str:
    return moment.isoformat(timespec="seconds")


BROKEN_SECRET: Final = "BrokenSecret"
TRUSTED_FIRST: Final = dt.timedelta(days=30)
"""The time for which clients trust a new authority before it signs certificates."""
LAST_MOMENT: Final = dt.timedelta(days=1)
"""The new authority begins to sign certificates at least this long before the old authority expires."""

Data = Mapping[str, bytes]
"""The decoded `data` of a Secret."""


class AuthoritySecrets(NamedTuple):
    """The data of the two Secrets of a CA: `key` and `certificate`. The data is None if the Secret is missing.

    `marks` are the annotations of the Secret with the key.
    """

    key: Data | None
    certificate: Data | None
    marks: Mapping[str, str] = {}


class AuthorityPlan(NamedTuple):
    """The desired state of a CA: `signer` signs certificates, and `trusted` are the CA certificates that are trusted.

    `key` and `certificate` are the data of the CA's two Secrets, and `marks` the annotations of the Secret with the
    key. `given` are the names of the Secrets that the user provides.
    """

    signer: Authority
    trusted: str
    key: Data
    certificate: Data
    marks: Mapping[str, str] = {}
    given: Set[str] = frozenset()


class _Keys(NamedTuple):
    """The keys of an authority: `signer` signs certificates now, and `successor` will replace `signer`.

    `others` are the certificates of former keys, which are still trusted.
    """

    signer: Pem
    successor: Pem | None = None
    others: Sequence[x509.Certificate] = ()


def plan_authority(
    name: str, found: AuthoritySecrets, now: dt.datetime, new_password: Callable[[], str]
) -> AuthorityPlan | Refusal:
    """Return the desired state of the CA `name`. Create the CA if it has no Secrets; refuse invalid Secrets."""
    asked = asked_by(found.marks, now)
    if found.key is None and found.certificate is None:
        keys = _Keys(Authority.create(name, now).pem)
    else:
        try:
            keys = _advanced(name, _as_asked(name, _read(found.key or {}, now), asked, now), now)
        except (KeyError, ValueError) as error:
            return _broken(name, error)
    return _plan(keys, found, now, new_password)._replace(marks=asked.marks)


def _read(secret: Data, now: dt.datetime) -> _Keys:
    """Read the keys in a Secret. Raise KeyError if an entry is missing, and ValueError if an entry is invalid."""
    first, *others = certificates_in(secret["ca.crt"].decode())
    signer = Authority(Pem(secret["ca.key"].decode(), pem_of([first])), now).pem
    following = secret.get("next.key")
    if following is None:
        return _Keys(signer, None, others)
    second, *others = others
    successor = Authority(Pem(following.decode(), pem_of([second])), now).pem
    return _Keys(signer, successor, others)


def _as_asked(name: str, keys: _Keys, asked: Asked, now: dt.datetime) -> _Keys:
    """Carry out the renewal and the replacement step that the annotations request now, and return the new keys."""
    if asked.renews:
        keys = keys._replace(signer=Authority(keys.signer, now).renewed())
    match asked.step:
        case "trust" if keys.successor is None:
            return keys._replace(successor=Authority.create(name, now).pem)
        case "sign" if keys.successor is not None:
            return _Keys(keys.successor, None, [_certificate(keys.signer), *keys.others])
        case "forget":
            return keys._replace(others=())
    return keys


def _advanced(name: str, keys: _Keys, now: dt.datetime) -> _Keys:
    """Drop expired former certificates, carry out the automatic replacement step that is due, and return the new keys.

    The first step creates the successor, and the second step makes the successor the signer.
    """
    signer, others = _certificate(keys.signer), [each for each in keys.others if each.not_valid_after_utc > now]
    keys = keys._replace(others=others)
    if keys.successor is None and now >= renewed_at(signer):
        keys = keys._replace(successor=Authority.create(name, now).pem)
    if keys.successor is None or not _signs_now(signer, _certificate(keys.successor), now):
        return keys
    former = [signer] if signer.not_valid_after_utc > now else []
    return _Keys(keys.successor, None, [*former, *others])


def _signs_now(signer: x509.Certificate, successor: x509.Certificate, now: dt.datetime) -> bool:
    is_known = now >= successor.not_valid_before_utc + EARLY + TRUSTED_FIRST
    return is_known or now >= signer.not_valid_after_utc - LAST_MOMENT


def _plan(keys: _Keys, found: AuthoritySecrets, now: dt.datetime, new_password: Callable[[], str]) -> AuthorityPlan:
    pems = [keys.signer, *([keys.successor] if keys.successor is not None else [])]
    certificates = [*map(_certificate, pems), *keys.others]
    trusted, for_all = pem_of(certificates), for_clients(found.certificate, certificates, new_password)
    following = {"next.key": keys.successor.key.encode()} if keys.successor is not None else {}
    secret = {"ca.key": keys.signer.key.encode(), "ca.crt": trusted.encode(), **following}
    return AuthorityPlan(Authority(keys.signer, now), trusted, secret, for_all)


def for_clients(before: Data | None, certificates: Sequence[x509.Certificate], new_password: Callable[[], str]) -> Data:
    """Return the content of the Secret for clients: the certificates as PEM and as PKCS12.

    The PKCS12 file keeps its password if the Secret already has one.
    """
    found, trusted = before or {}, pem_of(certificates).encode()
    if found.get("ca.crt") == trusted and {"ca.p12", "ca.password"} <= found.keys():
        return found
    password = found.get("ca.password", b"").decode() or new_password()
    return {"ca.crt": trusted, "ca.p12": pkcs12_of(certificates, password), "ca.password": password.encode()}


def _certificate(pem: Pem) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem.certificate.encode())


def _broken(name: str, error: Exception) -> Refusal:
    why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
    message = f"Secret {name} holds no valid certificate authority: {why}; restore the Secret from a backup"
    both = f"or delete the Secrets {name} and {certificate_name(name)}, and give the new ca.crt to all clients"
    return Refusal(BROKEN_SECRET, f"{message}, {both}")


def plan_given(
    name: str, found: AuthoritySecrets, now: dt.datetime, new_password: Callable[[], str], *, makes_certificate: bool
) -> AuthorityPlan | Refusal:
    """Return the authority that the user provides, or why it is invalid; `name` is the Secret with the key.

    `makes_certificate` is True if the operator makes the Secret NAME-cert from the certificates in the Secret `name`,
    and False if the user provides NAME-cert too.
    """
    try:
        signer, certificates = _read_given(name, found, now, makes_certificate)
        for each in certificates:
            _check(each, now)
    except ValueError as error:
        return _refused(name, str(error))
    given = {name} if makes_certificate else {name, certificate_name(name)}
    made = for_clients(found.certificate, certificates, new_password)
    return AuthorityPlan(signer, pem_of(certificates), found.key or {}, made, given=frozenset(given))


def signer_first(key: str, certificates: Iterable[x509.Certificate]) -> Sequence[x509.Certificate]:
    """Return the certificates; the certificate that belongs to the private key `key` comes first.

    Raise ValueError if none of the certificates belongs to the private key.
    """
    found, public_key = list(certificates), Authority.public_key_of(key)
    for each in found:
        if each.public_key() == public_key:
            return [each, *(other for other in found if other != each)]
    raise ValueError("none of the certificates belongs to the private key")


def _read_given(
    name: str, found: AuthoritySecrets, now: dt.datetime, makes_certificate: bool
) -> tuple[Authority, Sequence[x509.Certificate]]:
    """Return the authority and its trusted certificates. Raise ValueError if the Secrets are incomplete or invalid."""
    if found.key is None:
        raise ValueError(f"Secret {name} is missing")
    key = found.key.get("ca.key") or found.key.get("tls.key")
    if key is None:
        raise ValueError(f"ca.key of Secret {name} is missing")
    beside = found.key.get("tls.crt") or found.key.get("ca.crt")
    text = beside if makes_certificate else (found.certificate or {}).get("ca.crt")
    if text is None:
        raise ValueError(f"ca.crt of Secret {certificate_name(name)} is missing")
    certificates = signer_first(key.decode(), certificates_in(text.decode()))
    return Authority(Pem(key.decode(), pem_of(certificates[:1])), now), certificates


def _check(certificate: x509.Certificate, now: dt.datetime) -> None:
    """Raise ValueError unless the certificate is valid now and belongs to a self-signed authority."""
    subject = f"the certificate {certificate.subject.rfc4514_string()}"
    if not _may_sign(certificate):
        raise ValueError(f"{subject} is not the certificate of an authority: it lacks CA:TRUE or keyCertSign")
    if not has_issued(certificate, certificate):
        raise ValueError(
            f"{subject} is signed by another authority, and brokers would trust all certificates of that authority"
        )
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc:
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        raise ValueError(f"{subject} is valid only from {begin.isoformat()} to {end.isoformat()}")


def _may_sign(certificate: x509.Certificate) -> bool:
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return False
    try:
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return constraints.ca
    return constraints.ca and usage.key_cert_sign


def _refused(name: str, why: str) -> Refusal:
    field = "clusterCa" if name.endswith("-cluster-ca") else "clientsCa"
    keys = f"ca.key in Secret {name} and ca.crt in Secret {certificate_name(name)}, or tls.key and tls.crt in {name}"
    message = f"spec.{field}.generateCertificateAuthority is false, but {why}"
    return Refusal(BROKEN_SECRET, f"{message}; provide {keys}; the certificate must be self-signed and valid now")
