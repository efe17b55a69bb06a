"""Encrypt and decrypt the bytes of one non-blocking socket.

OpenSSL works on two buffers in memory, and this module moves bytes between these buffers and the socket. One system
call can therefore receive many TLS records, whereas OpenSSL itself would make two system calls for each TLS record.
This matters because librdkafka sends two TLS records for each Kafka record: one for the value, and one for the bytes
before the value.
"""

import socket
import ssl
from contextlib import suppress
from typing import Final

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
        """Encrypt and send the first bytes of a buffer; return their number.

        After BlockingIOError, or a smaller number than the length of the buffer, the next call must repeat the bytes
        that were not sent, because some of them may be encrypted already.
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
