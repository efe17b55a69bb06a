"""The certificate that a broker shows to a client."""

import socket
import ssl
from pathlib import Path


def shown_by(authority: Path, port: int) -> bytes:
    """Return the certificate (DER) that a broker at this port shows now; the client trusts the file of an authority."""
    context = ssl.create_default_context(cafile=str(authority))
    with (
        socket.create_connection(("localhost", port)) as connected,
        context.wrap_socket(connected, server_hostname="localhost") as tls,
    ):
        return tls.getpeercert(binary_form=True) or b""
