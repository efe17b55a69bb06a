"""The certificates that brokers show in the TLS handshake, read at most once an hour."""

import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Final

from cryptography import x509

from barnabas_console.model.snapshot import Certificate
from barnabas_kafka.security import Credentials, SecurityFileError

CHECK_S: Final = 3600.0
RETRY_S: Final = 60.0
"""The seconds after which a broker whose handshake failed is asked again."""
HANDSHAKE_S: Final = 3.0
HANDSHAKES_MAX: Final = 8


class Certificates:
    """The certificates of brokers by address; `steady_s` is a clock that never goes back, `now` has a zone."""

    def __init__(self, credentials: Credentials, steady_s: Callable[[], float], now: Callable[[], datetime]) -> None:
        self._credentials = credentials
        self._steady_s = steady_s
        self._now = now
        self._known: dict[str, tuple[float, Certificate]] = {}

    def of(self, addresses: Sequence[str]) -> Mapping[str, Certificate]:
        """Return the certificate at each `host:port`; none if connections are in clear."""
        now_s = self._steady_s()
        self._known = {each: found for each, found in self._known.items() if each in addresses and found[0] > now_s}
        due = [each for each in addresses if each not in self._known]
        for address, found in self._read(due) if due else ():
            self._known[address] = (now_s + (RETRY_S if found.problem else CHECK_S), found)
        return {each: found for each, (_, found) in self._known.items()}

    def _read(self, addresses: Sequence[str]) -> Iterator[tuple[str, Certificate]]:
        try:
            context = _context(self._credentials.settings())
        except (OSError, SecurityFileError):  # The connections to the brokers say the same.
            return
        if context is None:
            return
        with ThreadPoolExecutor(HANDSHAKES_MAX, "handshake") as workers:
            found = workers.map(lambda each: _shown(context, each, self._now()), addresses)
            yield from zip(addresses, found, strict=True)


def _context(settings: Mapping[str, Any]) -> ssl.SSLContext | None:
    """Return the TLS context of a client with these settings, or None for connections in clear. Raises OSError."""
    if not settings["security_protocol"].endswith("SSL"):
        return None
    if "ssl_context" in settings:
        given: ssl.SSLContext = settings["ssl_context"]
        return given
    context = ssl.create_default_context(cafile=settings.get("ssl_cafile"))
    context.check_hostname = settings["ssl_check_hostname"]
    if "ssl_certfile" in settings:
        context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"], settings["ssl_password"])
    return context


def _shown(context: ssl.SSLContext, address: str, now: datetime) -> Certificate:
    host, _, port = address.rpartition(":")
    try:
        with (
            socket.create_connection((host, int(port)), HANDSHAKE_S) as opened,
            context.wrap_socket(opened, server_hostname=host) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
    except (OSError, ValueError) as error:
        return Certificate(problem=str(error) or type(error).__name__)
    expires = x509.load_der_x509_certificate(shown or b"").not_valid_after_utc
    return Certificate(expires.date().isoformat(), (expires - now).days)
