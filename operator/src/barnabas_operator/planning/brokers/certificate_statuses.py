"""The expiry times of the certificates of a Cluster, for its status."""

import datetime as dt
from collections.abc import Iterable

from cryptography import x509

from barnabas_operator.certificates.authority import renewed_at
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.security import CertificateStatus


def certificate_status(name: str, certificate: x509.Certificate, *, is_given: bool = False) -> CertificateStatus:
    """Return the expiry and renewal time of a certificate; certificates that the user provides are never renewed."""
    renewal = None if is_given else _text(renewed_at(certificate))
    return CertificateStatus(name=name, not_after=_text(certificate.not_valid_after_utc), renewal_time=renewal)


def with_users(
    own: tuple[CertificateStatus, ...] | None, users: Iterable[Json]
) -> tuple[CertificateStatus, ...] | None:
    """Return the Cluster's `own` certificates and the User certificate that expires first, or None if `own` is None."""
    found = (each.get("status", {}).get("certificate") for each in users)
    first = sorted((each["notAfter"], each["name"], each["renewalTime"]) for each in found if each)[:1]
    return own and (*own, *(CertificateStatus(name=name, not_after=end, renewal_time=at) for end, name, at in first))


def _text(moment: dt.datetime) -> str:
    """Return a moment as a Kubernetes `Time`; sorting such strings sorts them by time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
