"""What a connection still has to send: small answers in one `send`, file slices by `sendfile`, in bounded turns."""

import os
import socket
from collections import deque
from collections.abc import Iterable
from typing import Final, cast

from barnabas_broker.server.cold_reads import PIECE_BYTES, is_cached, read_if_cached
from barnabas_broker.wire.parts import FileSlice, Part

TURN_BYTES: Final = 256 * 1024
"""At most so much for one connection and turn, so that a 6 MB fetch does not hold up small produces."""
GATHER_BYTES_MAX: Final = 128 * 1024
"""Up to here one copy and one `send` cost less than a `send` and a `sendfile`."""


class Outbox:
    """The parts of answers in order. `flush` raises OSError when the peer is gone."""

    __slots__ = ("_held_bytes", "_parts", "_send", "_socket", "_warm_bytes", "bytes_sent", "cold")

    def __init__(self, connection_socket: socket.socket) -> None:
        self._socket = connection_socket
        self._send = connection_socket.send
        self._parts: deque[Part] = deque()
        self.bytes_sent = 0
        self._held_bytes = 0
        self._warm_bytes = 0
        """Of the first part, a slice: they are in memory."""
        self.cold: FileSlice | None = None
        """What has to be read from the disk before anything more is sent."""

    @property
    def is_empty(self) -> bool:
        """Whether everything has been handed to the kernel."""
        return not self._parts

    @property
    def held_bytes(self) -> int:
        """What waits here takes so much memory; what is in files takes none."""
        return self._held_bytes if self._parts else 0

    def clear(self) -> None:
        """Nothing of it will be sent."""
        self._parts.clear()

    def put(self, parts: list[Part]) -> bool:
        """Send `parts` after what waits already; True when nothing is left to send."""
        if self._parts:
            self._parts.extend(parts)
            self._held_bytes += memory_bytes(parts)
            return False
        first = parts[0]
        if len(parts) == 1 and first.__class__ is not FileSlice:
            return self._send_first(first)  # type: ignore[arg-type]  # no FileSlice, by the test above
        self._parts.extend(_gathered(parts))
        if self.flush():
            return True
        self._held_bytes = memory_bytes(self._parts)
        return False

    def _send_first(self, part: bytes | bytearray | memoryview) -> bool:
        try:
            sent = self._send(part)
        except BlockingIOError:
            sent = 0
        self.bytes_sent += sent
        if sent == len(part):
            return True
        self._parts.append(memoryview(part)[sent:])
        self._held_bytes = _size_in_memory(part)
        return False

    def flush(self) -> bool:
        """Send what the socket takes, one turn's worth at most; True when nothing is left."""
        budget = TURN_BYTES
        try:
            while self._parts and budget > 0 and self.cold is None:
                budget -= self._send_one(budget)
        except BlockingIOError:
            return False
        return not self._parts

    def warmed(self, size_bytes: int) -> None:
        """So much of what was cold is in memory now."""
        self.cold = None
        self._warm_bytes = size_bytes

    def _send_one(self, budget: int) -> int:
        part = self._parts[0]
        if isinstance(part, FileSlice):
            if not self._warm_bytes:
                piece_bytes = min(part.length, PIECE_BYTES)
                if not is_cached(part.file, part.position, piece_bytes):
                    self.cold = part
                    return 0
                self._warm_bytes = piece_bytes
            length = min(self._warm_bytes, budget)
            sent = os.sendfile(self._socket.fileno(), part.file.fileno(), part.position, length)
            self._warm_bytes -= sent
            if sent == 0:
                raise ConnectionAbortedError(f"file ended {part.length} bytes before the slice being sent did")
            left: Part | None = None
            if sent < part.length:
                left = FileSlice(part.file, part.position + sent, part.length - sent)
        else:
            sent = self._send(part, socket.MSG_MORE) if len(self._parts) > 1 else self._send(part)
            left = memoryview(part)[sent:] if sent < len(part) else None
            self._held_bytes -= 0 if left is not None else _size_in_memory(part)
        self.bytes_sent += sent
        if left is None:
            self._parts.popleft()
        else:
            self._parts[0] = left
        return sent


def memory_bytes(parts: Iterable[Part]) -> int:
    """What the parts take of our memory: those in files take none."""
    return sum(_size_in_memory(part) for part in parts if not isinstance(part, FileSlice))


def _size_in_memory(part: bytes | bytearray | memoryview) -> int:
    """A part that is sent half keeps all of it."""
    return len(part.obj) if isinstance(part, memoryview) else len(part)  # type: ignore[arg-type]  # bytes, all of them


def _gathered(parts: list[Part]) -> list[Part]:
    """The parts as one, read and joined, when they are few bytes and not on the disk; else as they are."""
    total = sum(part.length if isinstance(part, FileSlice) else len(part) for part in parts)
    if total > GATHER_BYTES_MAX:
        return parts
    pieces = [read_if_cached(part) if isinstance(part, FileSlice) else part for part in parts]
    if None in pieces:
        return parts
    joined = b"".join(cast("list[bytes]", pieces))
    if len(joined) != total:
        raise ConnectionAbortedError(f"file ended {total - len(joined)} bytes before the slice being sent did")
    return [joined]
