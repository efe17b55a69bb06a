"""The access to the API server: where it is, and the identity of this process. `discovery` finds both."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class NoAccess(Exception):
    """The error that the access of this process is missing or not valid; the message says what."""


class Access(NamedTuple):
    """`read_token` is called before each request, since tokens change; it gives None where a certificate speaks."""

    server: str
    tls: ssl.SSLContext | None
    read_token: Callable[[], str | None]


def token_file(path: Path) -> Callable[[], str]:
    """Return a function that reads a token, which the kubelet replaces long before it ends. It raises NoAccess."""

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NoAccess(f"{path}: {error}") from error

    return read
