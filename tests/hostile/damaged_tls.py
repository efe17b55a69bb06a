"""Damaged TLS records and handshakes: every case is a function of the seed and its number."""

import itertools
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from random import Random

from fuzz.hostile_requests import BODY_BREAKS
from harness.certificates import Authority, Identity

ADDRESSES = 50
"""Each address has its own ports."""
ANSWER_S_MAX = 30.0
RECEIVED_BYTES = 1 << 16
FLIGHTS = 3
"""The client's hello, the end of its handshake, and a request."""
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
"""The newer version encrypts clients' certificates, so only in the older one damage reaches their parser."""
REQUEST = struct.pack(">ihhih", 10, 18, 0, 7, -1)
"""An ApiVersions request, whose response begins with the correlation id 7."""
HEADER = struct.Struct(">BHH")
TYPES = (0, 20, 21, 22, 22, 23, 24, 255)
"""The last type but one is the heartbeat, which has leaked memory in other servers."""
RECORD_VERSIONS = (0x0303, 0x0301, 0x0300, 0x0002, 0xFFFF)
LENGTHS = (0, 1, 16_384, 16_385, 18_433, 65_535)
NO_RECORDS = (
    b"\x80\x2e\x01\x00\x02" + bytes(43),  # This is the hello of SSL 2.
    b"GET / HTTP/1.1\r\n\r\n",
    REQUEST,
    bytes(100),
)
BETWEEN = (
    HEADER.pack(21, 0x0303, 2) + b"\x01\x00",  # This is a warning that the client closes.
    HEADER.pack(21, 0x0303, 2) + b"\x02\x28",
    HEADER.pack(20, 0x0303, 1) + b"\x01",
    HEADER.pack(22, 0x0303, 0),
    HEADER.pack(22, 0x0303, 4) + bytes(4),  # This requests a renegotiation.
    HEADER.pack(24, 0x0303, 3) + b"\x01\x40\x00",
)
PIECE_BYTES_MAX = 40


def clients(authority: Authority, identity: Identity) -> list[ssl.SSLContext]:
    """Return the TLS context of an honest client for each version."""
    made = []
    for version in VERSIONS:
        context = ssl.create_default_context(cadata=authority.certificate)
        context.load_cert_chain(identity.file)
        context.minimum_version = context.maximum_version = version
        made.append(context)
    return made


def _records(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield type, version and content of each record."""
    while data:
        kind, version, length = HEADER.unpack_from(data)
        yield kind, version, data[HEADER.size : HEADER.size + length]
        data = data[HEADER.size + length :]


def _with_another_header(random: Random, data: bytes) -> bytes:
    """Return records with a wrong header."""
    records = [HEADER.pack(kind, version, len(part)) + part for kind, version, part in _records(data)]
    place = random.randrange(len(records))
    kind, version, length = HEADER.unpack_from(records[place])
    lies = ((random.choice(TYPES), version, length), (kind, random.choice(RECORD_VERSIONS), length))
    header = random.choice((*lies, (kind, version, random.choice(LENGTHS))))
    records[place] = HEADER.pack(*header) + records[place][HEADER.size :]
    return b"".join(records)


def _in_pieces(random: Random, data: bytes) -> bytes:
    """Return the same content in many records."""
    size = random.randint(1, PIECE_BYTES_MAX)
    return b"".join(
        HEADER.pack(kind, version, len(part[start : start + size])) + part[start : start + size]
        for kind, version, part in _records(data)
        for start in range(0, len(part), size)
    )


def _with_others_between(random: Random, data: bytes) -> bytes:
    other = random.choice(BETWEEN) * random.choice((1, 2, 100))
    return random.choice((other + data, data + other))


def _with_another_length(random: Random, data: bytes) -> bytes:
    """Return a handshake message that claims another length, at most 16 MiB."""
    length = random.choice((0, 1, 0xFFFF, 0x10000, 0xFFFFFF))
    return data[: HEADER.size + 1] + length.to_bytes(3) + data[HEADER.size + 4 :]


def _no_record(random: Random, _: bytes) -> bytes:
    return random.choice(NO_RECORDS)


BREAKS: tuple[Callable[[Random, bytes], bytes], ...] = (
    *BODY_BREAKS,
    _with_another_header,
    _in_pieces,
    _with_others_between,
    _with_another_length,
    _no_record,
)


class Client:
    """One client on a connection, which sends flights as long as the broker answers correctly."""

    def __init__(self, context: ssl.SSLContext, connection: socket.socket) -> None:
        self._connection = connection
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost")

    def flight(self) -> bytes:
        """Return the client's next flight. Raises OSError."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                pass
            else:
                if not self._out.pending:
                    self._tls.write(REQUEST)
            if self._out.pending:
                return self._out.read()
            received = self._connection.recv(RECEIVED_BYTES)
            if not received:
                raise ConnectionResetError("closed by the broker")
            self._in.write(received)


def is_ended(port: int, contexts: list[ssl.SSLContext], seed: int, number: int) -> bool:
    """True if the broker closes the connection of a client whose last flight was damaged."""
    random = Random(f"{seed}:{number}")
    source = (f"127.0.2.{number % ADDRESSES + 1}", 0)
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX, source) as connection:
        client = Client(random.choice(contexts), connection)
        try:
            for _ in range(random.randrange(FLIGHTS)):
                connection.sendall(client.flight())
            connection.sendall(random.choice(BREAKS)(random, client.flight()))
            connection.shutdown(socket.SHUT_WR)
            for _ in itertools.takewhile(bool, iter(lambda: connection.recv(RECEIVED_BYTES), None)):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
    return True


def ask(port: int, context: ssl.SSLContext) -> bytes:
    """Return the beginning of the broker's response to an honest client."""
    plain = socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX)
    with context.wrap_socket(plain, server_hostname="localhost") as tls:
        tls.sendall(REQUEST)
        return tls.recv(8)[4:]
