"""The address of the API server, and the identity of this process; `discovery` finds both."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class NoAccess(Exception):
    """The error that this process has no valid access to the API server; the message has the reason."""


class Access(NamedTuple):
    """The address of the API server, its TLS context, and the token of this process.

    `read_token` is called before each request, because tokens change; the function returns None if there is no token,
    as with a client certificate.
    """

    server: str
    tls: ssl.SSLContext | None
    read_token: Callable[[], str | None]


def token_file(path: Path) -> Callable[[], str]:
    """Return a function that reads the token from the file at each call, because the kubelet replaces the token.

    The function raises NoAccess if the file cannot be read.
    """

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NoAccess(f"{path}: {error}") from error

    return read
