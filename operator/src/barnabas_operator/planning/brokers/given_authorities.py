"""The certificate authority that a user provides in Secrets.

The Secret NAME holds the key, as `ca.key` (Strimzi) or as `tls.key` (cert-manager). The certificates are in `ca.crt` of
the Secret NAME-cert, or in `tls.crt` or `ca.crt` of NAME. If NAME holds the certificates, the operator creates
NAME-cert for clients.
"""

import datetime as dt
from collections.abc import Callable, Iterable, Sequence

from cryptography import x509

from barnabas_operator.certificates.authority import Authority, Pem, certificates_in, has_issued, pem_of
from barnabas_operator.planning.brokers.authorities import BROKEN_SECRET, AuthorityPlan, AuthoritySecrets, for_clients
from barnabas_operator.planning.object_names import certificate_name
from barnabas_operator.planning.refusal import Refusal


def plan_given(
    name: str, found: AuthoritySecrets, now: dt.datetime, new_password: Callable[[], str], *, makes_certificate: bool
) -> AuthorityPlan | Refusal:
    """Return the authority that the user provides, or why it is invalid; `name` is the Secret with the key.

    `makes_certificate` is True if the operator makes the Secret NAME-cert from the certificates in the Secret `name`,
    and False if the user provides NAME-cert too.
    """
    try:
        signer, certificates = _read(name, found, now, makes_certificate)
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


def _read(
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
