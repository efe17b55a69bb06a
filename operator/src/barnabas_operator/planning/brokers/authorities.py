"""The certificate authorities of a Cluster: the content of their Secrets, and the replacement of their keys.

Each authority has two Secrets with the names and keys that Strimzi uses: NAME with `ca.key`, which only the operator
reads, and NAME-cert with `ca.crt`, `ca.p12` and `ca.password` for clients. NAME holds `ca.crt` as well, so that one
write changes the key and its certificate together, and NAME-cert is derived from NAME. The first certificate in
`ca.crt` belongs to the key that signs.

At two thirds of the lifetime of an authority its successor is created (`next.key`). The successor is trusted at once,
and signs after 30 days, when clients have fetched its certificate. The old authority is trusted until it expires.
Annotations of the Secret NAME replace the key sooner (`authority_requests.py`).
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final, NamedTuple

from cryptography import x509

from barnabas_operator.certificates.authority import (
    EARLY,
    Authority,
    Pem,
    certificates_in,
    pem_of,
    pkcs12_of,
    renewed_at,
)
from barnabas_operator.planning.brokers.authority_requests import Asked, asked_by
from barnabas_operator.planning.object_names import certificate_name
from barnabas_operator.planning.refusal import Refusal

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
