"""The signals between processes on one machine: a datagram socket each, in a temporary directory of its own.

A process that ends, however it ends, leaves a socket that refuses connections: so others see for certain that it is
gone. A missing socket proves nothing, somebody may have tidied up the directory.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

_RING: Final = b"!"


class Answer(Enum):
    """The answer of a process to a ring."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class ChangeSignal:
    """The socket of this process; `on_ring` is called on the loop, once for any number of rings since."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_ring: Callable[[], object]) -> None:
        self._loop = loop
        self._on_ring = on_ring
        self._directory = Path(tempfile.mkdtemp(prefix="barnabas-"))
        self.address: Final = str(self._directory / "bell")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(self.address)
        loop.add_reader(self._socket, self._drain)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1):
                pass
        self._on_ring()

    def close(self) -> None:
        """Close the socket, after which no process can ring."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def ring(address: str) -> Answer:
    """Wake the process at `address`; return whether it lives. UNKNOWN also if this process lacks descriptors."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.sendto(_RING, address)
    except BlockingIOError:
        return Answer.ALIVE  # A full queue of signals means that it is alive.
    except ConnectionRefusedError:
        return Answer.GONE
    except OSError:
        return Answer.UNKNOWN
    return Answer.ALIVE


def clear_away(address: str) -> None:
    """Remove the socket of a process that has ended."""
    with contextlib.suppress(OSError):
        os.unlink(address)
        os.rmdir(os.path.dirname(address))
