"""The open connections of a port by the addresses of their clients, and the connections that are closed for others."""

import asyncio
import hmac
import logging
import os
import re
import ssl
import stat
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from typing import Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from barnabas_core.config.security_definitions import STRONG
from barnabas_core.conventions import WebFiles

RATES_KEPT: Final = 1024
"""The number of addresses whose rate of connections is known."""
PREFIX_BITS: Final = 64
"""The bits of an IPv6 address that count, because one client may have all addresses with the same prefix."""
CONNECTION_BYTES: Final = 64 * 1024
"""The bytes that one connection counts, with its TLS state and its buffers."""

ConnectionT = TypeVar("ConnectionT", bound=Hashable)


class Limits(NamedTuple):
    """The limits of a port."""

    bytes: int
    """The bytes of all connections, which are CONNECTION_BYTES each and the bytes of their requests."""
    rate: float
    """The connections of one address in a second; it may make twice as many at once."""


class _Held(NamedTuple):
    address: str
    bytes: int


class Visitors(Generic[ConnectionT]):
    """The open connections of a port, the oldest first.

    An address that connects too often is refused. If the connections together are too large, the oldest connection of
    the address with most bytes is closed. So a client that floods the port ends its own connections.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._held: dict[ConnectionT, _Held] = {}
        self._bytes: Counter[str] = Counter()
        self._due_s: OrderedDict[str, float] = OrderedDict()
        """The time at which an address has no connection left to wait for, as in GCRA."""

    def __iter__(self) -> Iterator[ConnectionT]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)

    def may_enter(self, address: str, now_s: float) -> bool:
        """True if the address has not connected too often; count this connection."""
        due_s = max(self._due_s.pop(address, now_s), now_s)
        is_admitted = due_s - now_s < 2
        self._due_s[address] = due_s + 1 / self._limits.rate if is_admitted else due_s
        if len(self._due_s) > RATES_KEPT:
            self._due_s.popitem(last=False)
        return is_admitted

    def hold(self, connection: ConnectionT, address: str, size: int = CONNECTION_BYTES) -> list[ConnectionT]:
        """Add a connection, or more bytes of it; return the connections to close, which are no longer held."""
        before = self._held.get(connection, _Held(address, 0))
        self._held[connection] = before._replace(bytes=before.bytes + size)
        self._bytes[address] += size
        return list(self._superfluous())

    def leave(self, connection: ConnectionT) -> None:
        """Forget a connection, which may already be forgotten."""
        held = self._held.pop(connection, None)
        if held is not None:
            self._bytes[held.address] -= held.bytes
            if not self._bytes[held.address]:
                del self._bytes[held.address]

    def _superfluous(self) -> Iterator[ConnectionT]:
        while self._bytes.total() > self._limits.bytes:
            heaviest = max(self._bytes.values())
            full = {address for address, size in self._bytes.items() if size == heaviest}
            oldest = next(connection for connection, held in self._held.items() if held.address in full)
            self.leave(oldest)
            yield oldest


class Turns:
    """One piece of work at a time. Addresses take turns, so that many pieces of one address delay no other much."""

    def __init__(self) -> None:
        self._all = asyncio.Lock()
        self._of: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the turn of the address, in which the block runs."""
        own = self._of.setdefault(address, asyncio.Lock())
        async with own, self._all:
            yield


def address_of(host: str) -> str:
    """Return the address by which a client counts: an IPv4 address, or the prefix of an IPv6 address."""
    found = ip_address(host.partition("%")[0])
    if found.version == 4:
        return str(found)
    mapped = found.ipv4_mapped
    return str(mapped) if mapped is not None else str(int(found) >> (128 - PREFIX_BITS))


log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 1024 * 1024
T = TypeVar("T")


class FileRefused(Exception):
    """A file that cannot be used; the message names the setting, its value and what is allowed."""


class Watched(Generic[T]):
    """The content of some files. If changed files cannot be used, the earlier content stays."""

    def __init__(self, what: str, paths: Sequence[str], read: Callable[[], T]) -> None:
        """Read the files. Raises FileRefused if they cannot be used, and any other exception of `read`."""
        self._what, self._paths, self._read = what, paths, read
        self._marks = self._marks_now()
        self.current = read()

    def refresh(self) -> None:
        """Read the files again if they have changed; log whether the new content is used. Never raise FileRefused."""
        marks = self._marks_now()
        if marks == self._marks:
            return
        self._marks = marks
        try:
            self.current = self._read()
        except FileRefused as error:
            log.error("the HTTP listener keeps its old %s, because the new files cannot be used: %s", self._what, error)
        else:
            log.info("the HTTP listener now uses a new %s", self._what)

    def _marks_now(self) -> list[object]:
        return list(map(mark_of_file, self._paths))


def mark_of_file(location: str) -> object:
    """Return a value that changes when the file changes; None if the file cannot be found."""
    try:
        found = os.stat(location)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def content_of_file(location: str) -> bytes | None:
    """Return the first FILE_BYTES_MAX + 1 bytes of a regular file; None for another kind of file. Raise OSError.

    Clients that may alter configs can choose some of the paths. Other kinds of files are not read, because reading a
    device might never end, and reading a pipe would block.
    """
    with os.fdopen(os.open(location, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return file.read(FILE_BYTES_MAX + 1) if is_regular else None


_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""The form of a token in RFC 6750; other tokens cannot be sent in a header unchanged."""
_NO_TOKEN: Final = "must hold one token of letters, digits and -._~+/, such as the output of `openssl rand -hex 32`"
_BEGINS: Final = "-----BEGIN "


class Protection:
    """The TLS context and the token of a web port; without files the port has neither."""

    def __init__(self, files: WebFiles = WebFiles(), names: WebFiles = WebFiles()) -> None:  # noqa: B008  # It is constant.
        """Read the files that protect the port. Raises FileRefused if a file cannot be used.

        Error messages take the name of each file's setting from `names`.
        """
        self.names = names
        self._tls: Watched[ssl.SSLContext] | None = None
        self._token: Watched[bytes] | None = None
        if files.certificate:
            paths = sorted({files.certificate, files.key or files.certificate})
            self._tls = Watched("certificate", paths, partial(_context, files, names))
        if files.token:
            self._token = Watched("token", [files.token], partial(_token, files, names))

    def __bool__(self) -> bool:
        return self._tls is not None

    @property
    def scheme(self) -> str:
        """The scheme of the port's URLs, `https` or `http`."""
        return "https" if self else "http"

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context for the next handshake; None without TLS."""
        return None if self._tls is None else self._tls.current

    def admits(self, authorization: bytes) -> bool:
        """True if the port has no token, or if the value of the header Authorization contains the right token."""
        if self._token is None:
            return True
        scheme, _, given = authorization.strip().partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._token.current)

    def refresh(self) -> None:
        """Read changed files again; if they cannot be used, log the error, and keep their earlier content."""
        for each in (self._tls, self._token):
            if each is not None:
                each.refresh()


def _context(files: WebFiles, names: WebFiles) -> ssl.SSLContext:
    key = files.key or files.certificate
    key_name = names.key if files.key else names.certificate
    if f"{_BEGINS}CERTIFICATE-----" not in _pem(files.certificate, names.certificate):
        raise _refused(names.certificate, files.certificate, "must hold a certificate and its chain, as PEM")
    pem = _pem(key, key_name)
    if "PRIVATE KEY-----" not in pem or "ENCRYPTED" in pem:
        raise _refused(key_name, key, "must hold a private key without a password, as PEM")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(STRONG)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(files.certificate, key, password="")
    except OSError as error:  # ssl.SSLError is a subclass of OSError.
        allowed = f"must hold a certificate that can be used with the private key in {key}, as PEM: {error}"
        raise _refused(names.certificate, files.certificate, allowed) from None
    return context


def _token(files: WebFiles, names: WebFiles) -> bytes:
    token = _content(files.token, names.token).strip()
    if _TOKEN.fullmatch(token) is None:
        raise _refused(names.token, files.token, f"{'is empty; ' if not token else ''}{_NO_TOKEN}")
    return token


def _pem(location: str, name: str) -> str:
    return _content(location, name).decode("ascii", "replace")


def _content(location: str, name: str) -> bytes:
    try:
        content = content_of_file(location)
    except OSError as error:
        raise _refused(name, location, f"must be a file that can be read: {error.strerror}") from None
    if content is None or len(content) > FILE_BYTES_MAX:
        raise _refused(name, location, f"must be a regular file of at most {FILE_BYTES_MAX} bytes")
    return content


def _refused(name: str, value: str, allowed: str) -> FileRefused:
    return FileRefused(f"{name}={value}: {allowed}")
