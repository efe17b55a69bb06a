"""Encrypt and decrypt the bytes of one non-blocking socket.

OpenSSL works on two buffers in memory, and this module moves bytes between these buffers and the socket. One system
call can therefore receive many TLS records, whereas OpenSSL itself would make two system calls for each TLS record.
This matters because librdkafka sends two TLS records for each Kafka record: one for the value, and one for the bytes
before the value.

After the handshake, a TlsTransport sends and receives. A TlsStream cannot peek, so a peek of the transport decrypts
bytes and keeps them until they are received.

Handshakes run on the event loop, with limits on their number, their duration and the time they take per turn. Clients
that never finish a handshake cannot keep others out: listeners of brokers and of clients have a limit each, and
`connection_bounds` says whose handshake is ended at the limit. Each periodic check logs all failed handshakes in one
line, however many there are.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.server.connection_bounds import BROKERS_MAX, NetworkQueue, Newcomers, network_of
from barnabas_broker.wire.framing import Buffer, FileSlice
from barnabas_core.loop_turns import DECRYPTED_BYTES, LASTS_S

ENCRYPTED_BYTES: Final = 12 * 1024 - 3
"""The maximum encrypted bytes that OpenSSL gets at a time, chosen so that its buffer stays at 16 KiB.

The buffer keeps the size of its largest content plus a third.
"""
RECEIVED_BYTES: Final = 128 * 1024
"""The maximum encrypted bytes of one receive."""
RECORD_BYTES: Final = 16 * 1024
"""The maximum plaintext of a TLS record. One record is encrypted at a time, so that the buffer needs only 22 KiB."""
SENT_BYTES: Final = 64 * 1024
"""The plaintext bytes that are encrypted together: four TLS records, which one system call sends.

A blocked connection holds at most this many bytes encrypted.
"""
UNASKED_BYTES_MAX: Final = 64 * 1024
"""The limit for unsent bytes that OpenSSL has produced by itself, such as alerts."""
NO_ROOM: Final = memoryview(b"")


class TlsStream:
    """A TLS session over a connected socket that never blocks."""

    __slots__ = ("_accepted_bytes", "_incoming", "_outgoing", "_socket", "_tls", "_unsent")

    def __init__(
        self,
        connected: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        self._unsent: list[bytes] = []
        """Encrypted records that the socket has not taken yet."""
        self._accepted_bytes = 0
        """The number of plaintext bytes of the last `send` that are encrypted, but not sent completely."""

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._socket.fileno()

    def certificate(self) -> bytes | None:
        """Return the certificate of the other side in DER, or None if the other side has no certificate."""
        return self._tls.getpeercert(binary_form=True)

    def shake_hands(self) -> None:
        """Continue the handshake. Raise SSLWantReadError or SSLWantWriteError if it must wait for the socket.

        Raise OSError if the handshake fails.
        """
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_handshake()
                self._receive_handshake()
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # Send the TLS alert, which has the reason of the failure.
                raise
            else:
                self._send_handshake()
                return

    def _send_handshake(self) -> None:
        if not self._flush():
            raise ssl.SSLWantWriteError

    def _receive_handshake(self) -> None:
        try:
            received = self._receive(NO_ROOM)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    @property
    def has_received(self) -> bool:
        """True if `receive_into` has not yet returned all bytes that were received from the socket."""
        return bool(self._tls.pending() or self._incoming.pending)

    def receive_into(self, buffer: memoryview) -> int:
        """Decrypt received bytes into the buffer; return their number, 0 if the other side has closed the connection.

        Raise BlockingIOError if nothing has arrived. If the buffer is not full afterwards, the socket is empty.
        """
        read, have, size, encrypted = self._tls.read, 0, len(buffer), NO_ROOM
        try:
            while have < size:
                try:
                    while have < size:
                        received = read(size - have, buffer[have:])
                        if not received:
                            return have
                        have += received  # type: ignore[operator]  # a number, because `read` was given a buffer
                except ssl.SSLWantReadError:
                    encrypted = encrypted or self._receive(buffer[have:])
                    if not encrypted:
                        return have
                    self._incoming.write(encrypted[:ENCRYPTED_BYTES])
                    encrypted = encrypted[ENCRYPTED_BYTES:]
        except BlockingIOError:
            if not have:
                raise
        return have

    def _receive(self, room: memoryview) -> memoryview:
        """Receive encrypted bytes and return them; return no bytes if the other side has closed the connection.

        If `room` is large, the encrypted bytes are received into `room`, behind its first RECORD_BYTES. The caller
        decrypts them to the beginning of `room`. Without the gap, a TLS record whose first bytes OpenSSL already has
        could overwrite encrypted bytes.
        """
        if self._outgoing.pending:  # OpenSSL has replied by itself, for example to a request for renegotiation.
            self._flush()
            if self._outgoing.pending > UNASKED_BYTES_MAX:
                raise ConnectionAbortedError("the other side does not read the replies to its TLS messages")
        if len(room) < RECORD_BYTES + ENCRYPTED_BYTES:
            return memoryview(self._socket.recv(ENCRYPTED_BYTES))
        behind = room[RECORD_BYTES : RECORD_BYTES + RECEIVED_BYTES]
        return behind[: self._socket.recv_into(behind)]

    def send(self, part: memoryview) -> int:
        """Encrypt and send the beginning of a buffer; return the number of plaintext bytes sent.

        Raises BlockingIOError if none was sent. The next call must begin with the first byte that was not sent, because
        it may be encrypted already.
        """
        if self.is_blocked:
            return self.send_blocked()
        sent = 0
        while sent < len(part):
            self._accepted_bytes = accepted = self._encrypt(part[sent : sent + SENT_BYTES])
            if not self._flush():
                break
            self._accepted_bytes = 0
            sent += accepted
        if not sent:
            raise BlockingIOError
        return sent

    def _encrypt(self, piece: memoryview) -> int:
        """Encrypt bytes for the next `_flush`; return the number of bytes."""
        write, read, add = self._tls.write, self._outgoing.read, self._unsent.append
        for start in range(0, len(piece), RECORD_BYTES):
            write(piece[start : start + RECORD_BYTES])
            add(read())
        return len(piece)

    @property
    def is_blocked(self) -> bool:
        """True if the socket had no room for all encrypted bytes of the last `send`."""
        return self._accepted_bytes > 0

    def send_blocked(self) -> int:
        """Send the encrypted bytes that the last `send` left over; return the number of plaintext bytes sent.

        Raise BlockingIOError if the socket still has too little room.
        """
        if not self._flush():
            raise BlockingIOError
        sent, self._accepted_bytes = self._accepted_bytes, 0
        return sent

    def _flush(self) -> bool:
        """Send encrypted bytes; return True if none is left."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = [self._outgoing.read()]
            try:
                sent = self._socket.sendmsg(self._unsent)
            except BlockingIOError:
                return False
            is_all = sent == sum(map(len, self._unsent))
            self._unsent = [] if is_all else [b"".join(self._unsent)[sent:]]
        return True

    def close(self) -> None:
        """Close the socket, after a TLS close_notify if the socket has room; wait for no close_notify in return."""
        if not self.is_blocked:
            # OpenSSL raises an error while the other side has not answered our close_notify.
            with suppress(ssl.SSLError, ValueError):
                self._tls.unwrap()
        with suppress(OSError):  # The other side may be gone.
            self._flush()
        self._socket.close()


PEEKED_BYTES_MAX: Final = 16 * 1024
"""The maximum number of decrypted bytes that a connection holds before they are received."""
WRITE_BYTES: Final = 128 * 1024
"""The maximum bytes that one call encrypts and sends, so that a large response does not block the event loop."""


class TlsTransport:
    """A connected TLS stream."""

    __slots__ = ("_fd", "_is_called_soon", "_loop", "_peeked", "_readable", "_stream")

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: TlsStream) -> None:
        self._loop = loop
        self._stream = stream
        self._fd = stream.fileno()
        self._peeked = bytearray()
        self._readable: Callable[[], object] | None = None
        self._is_called_soon = False

    def receive(self, buffer: memoryview) -> int:
        """Receive what has arrived, as far as the buffer has room, and at most DECRYPTED_BYTES."""
        buffer = buffer[:DECRYPTED_BYTES]
        have = self._take_peeked(buffer)
        try:
            have += self._stream.receive_into(buffer[have:])
        except BlockingIOError:
            if not have:
                raise
        if have == len(buffer):
            self._call_soon()
        return have

    def _take_peeked(self, buffer: memoryview) -> int:
        taken = min(len(self._peeked), len(buffer))
        if taken:
            buffer[:taken] = self._peeked[:taken]
            del self._peeked[:taken]
        return taken

    def peek(self, buffer: memoryview) -> int:
        """Copy decrypted bytes into the buffer, at most PEEKED_BYTES_MAX, without consuming them."""
        room = memoryview(bytearray(PEEKED_BYTES_MAX - len(self._peeked)))
        try:
            self._peeked += room[: self._stream.receive_into(room)]
        except BlockingIOError:
            if not self._peeked:
                raise
        seen = min(len(self._peeked), len(buffer))
        buffer[:seen] = self._peeked[:seen]
        return seen

    def has_ended(self) -> bool:
        """True if the other side has closed the connection, and all its bytes are received."""
        try:
            return not self.peek(memoryview(bytearray(1)))
        except BlockingIOError:
            return False

    def send(self, part: Buffer) -> int:
        """Send up to WRITE_BYTES from the beginning of `part`; return how many bytes were sent.

        After BlockingIOError the caller must pass the same bytes again.
        """
        return self._stream.send(memoryview(part)[:WRITE_BYTES])

    send_before_more = send

    def send_file(self, part: FileSlice, bytes_max: int) -> int:
        """Read a file slice, which is in the page cache, then encrypt and send it."""
        if self._stream.is_blocked:
            return self._stream.send_blocked()
        read = os.pread(part.file.fileno(), min(bytes_max, part.length, WRITE_BYTES), part.position)
        return self._stream.send(memoryview(read)) if read else 0

    def call_when_readable(self, callback: Callable[[], object]) -> None:
        """Call `callback` when bytes arrive, or if received bytes are still in memory, unseen by the selector."""
        self._readable = callback
        self._loop.add_reader(self._fd, callback)
        self._call_soon()

    def _call_soon(self) -> None:
        if self._readable is not None and not self._is_called_soon and (self._peeked or self._stream.has_received):
            self._is_called_soon = True
            self._loop.call_soon(self._call)

    def _call(self) -> None:
        self._is_called_soon = False
        if self._readable is not None:
            self._readable()

    def ignore_readable(self) -> None:
        """Remove the callback for receiving."""
        self._readable = None
        self._loop.remove_reader(self._fd)

    def readable_from(self, size_bytes: int) -> None:
        """Do nothing: `size_bytes` counts decrypted bytes, but the socket option SO_RCVLOWAT counts encrypted bytes."""

    def call_when_writable(self, callback: Callable[[], object]) -> None:
        """Call `callback` in each turn of the loop in which something can be sent."""
        self._loop.add_writer(self._fd, callback)

    def ignore_writable(self) -> None:
        """Remove the callback for sending."""
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        """Close the connection with a TLS close_notify, without waiting for the other side's close_notify."""
        self._readable = None
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._stream.close()


log = logging.getLogger(__name__)

HANDSHAKE_S_MAX: Final = 10.0
HANDSHAKES_MAX: Final = 1024
"""The maximum number of unfinished handshakes of clients; each takes about 20 KiB."""
TOO_MANY: Final = "there were too many unfinished handshakes"
NAMED_MAX: Final = 3
"""The maximum number of failures that one log line names."""


class CertificateRefused(Exception):
    """The refusal of a certificate whose name no rule maps to a principal; the message contains the name."""


class ServerTls(NamedTuple):
    """The TLS context of a listener, and the function that maps a client's certificate to its principal."""

    context: ssl.SSLContext
    principal_of: Callable[[bytes | None], str]
    """A function that returns the principal for a DER certificate, or for None if the client has no certificate.

    The function may raise CertificateRefused.
    """


class Handshake(msgspec.Struct, eq=False):
    """One unfinished TLS handshake.

    After a success `done` is called with the transport and the principal, and after a failure `failed`.
    """

    tls: TlsStream
    peer: str
    network: str
    principal_of: Callable[[bytes | None], str]
    done: Callable[[TlsTransport, str], object]
    failed: Callable[[], object]
    under_way: "Newcomers[Handshake]"
    """The unfinished handshakes of the same kind of listener; this one is among them until it ends."""


class Handshakes:
    """All unfinished handshakes of one broker's listeners."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._of_brokers: Newcomers[Handshake] = Newcomers(BROKERS_MAX)
        self._of_clients: Newcomers[Handshake] = Newcomers(HANDSHAKES_MAX)
        self._ready: NetworkQueue[Handshake] = NetworkQueue()
        """The handshakes that can continue; networks take turns, because a step signs with the private key."""
        self._goes_on_soon = False
        self._failures: list[str] = []

    def __len__(self) -> int:
        return len(self._of_brokers) + len(self._of_clients)

    def begin(
        self,
        connected: socket.socket,
        server: ServerTls,
        peer: str,
        done: Callable[[TlsTransport, str], object],
        failed: Callable[[], object],
        *,
        is_protected: bool = False,
    ) -> None:
        """Begin a handshake over a non-blocking socket; end another of the same kind of listener if there are too many.

        The listener is protected if only brokers use it. `peer` is the client's `host:port`.
        """
        tls = TlsStream(connected, server.context, server_side=True)
        under_way = self._of_brokers if is_protected else self._of_clients
        address = peer.rpartition(":")[0]
        handshake = Handshake(tls, peer, network_of(address), server.principal_of, done, failed, under_way)
        self._loop.add_reader(tls.fileno(), self._is_ready, handshake)
        one_too_many = under_way.add(handshake, address, self._loop.time())
        if one_too_many is not None:
            self._end(one_too_many, TOO_MANY)

    def close_some(self, count: int) -> int:
        """End up to `count` handshakes, except those of brokers; return how many were ended."""
        closed = 0
        while closed < count and (handshake := self._of_clients.next_to_go()) is not None:
            self._end(handshake, TOO_MANY)
            closed += 1
        return closed

    def check(self) -> None:
        """End handshakes that take too long, and log the failures since the last check."""
        since_s = self._loop.time() - HANDSHAKE_S_MAX
        for handshake in [*self._of_brokers.added_before(since_s), *self._of_clients.added_before(since_s)]:
            self._end(handshake, f"the handshake took longer than {HANDSHAKE_S_MAX:.0f} s")
        if self._failures:
            more = f"; and {len(self._failures) - NAMED_MAX} more" if len(self._failures) > NAMED_MAX else ""
            log.warning("TLS handshakes failed: %s%s", "; ".join(self._failures[:NAMED_MAX]), more)
            self._failures.clear()

    def close(self) -> None:
        """End all handshakes."""
        for under_way in (self._of_brokers, self._of_clients):
            while (handshake := under_way.next_to_go()) is not None:
                self._end(handshake, "the broker stops")

    def _is_ready(self, handshake: Handshake) -> None:
        """Remove the callbacks of the socket, and queue the handshake for its next step."""
        self._ignore(handshake)
        self._ready.add(handshake.network, handshake)
        self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._goes_on_soon:
            self._goes_on_soon = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Continue queued handshakes until LASTS_S seconds of this turn of the event loop are used up."""
        self._goes_on_soon = False
        until_s = self._loop.time() + LASTS_S
        while self._ready and self._loop.time() < until_s:
            handshake = self._ready.take()
            if handshake in handshake.under_way:
                self._step(handshake)
        if self._ready:
            self._go_on_soon()

    def _step(self, handshake: Handshake) -> None:
        tls = handshake.tls
        try:
            tls.shake_hands()
            principal = handshake.principal_of(tls.certificate())
        except ssl.SSLWantReadError:
            self._loop.add_reader(tls.fileno(), self._is_ready, handshake)
        except ssl.SSLWantWriteError:
            self._loop.add_writer(tls.fileno(), self._is_ready, handshake)
        except (OSError, CertificateRefused) as error:
            self._end(handshake, str(error))
        except Exception as error:  # A bug ends this handshake, not the broker.
            log.error("bug in the TLS handshake of %s", handshake.peer, exc_info=error)
            self._end(handshake, "an unexpected error in the broker")
        else:
            handshake.under_way.discard(handshake)
            handshake.done(TlsTransport(self._loop, tls), principal)

    def _ignore(self, handshake: Handshake) -> None:
        self._loop.remove_reader(handshake.tls.fileno())
        self._loop.remove_writer(handshake.tls.fileno())

    def _end(self, handshake: Handshake, reason: str) -> None:
        handshake.under_way.discard(handshake)
        self._ignore(handshake)
        handshake.tls.close()
        self._failures.append(f"{handshake.peer}: {reason}")
        handshake.failed()
