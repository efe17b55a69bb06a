"""Where the API server is and who this process is to it: `discovery` finds out."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


class NoAccess(Exception):
    """What this process was given to reach an API server with is not there or does not do; the message says what."""


class Access(NamedTuple):
    """`read_token` is called before each request, since tokens change; it gives None where a certificate speaks."""

    server: str
    tls: ssl.SSLContext | None
    read_token: Callable[[], str | None]


def token_file(path: Path) -> Callable[[], str]:
    """Reads a token, which the kubelet replaces long before it ends. NoAccess when it is called."""

    def read() -> str:
        try:
            return path.read_text().strip()
        except OSError as error:
            raise NoAccess(f"{path}: {error}") from error

    return read
