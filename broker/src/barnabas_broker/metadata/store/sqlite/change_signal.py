"""The datagrams by which the processes on one machine that share a metadata store signal changes to each other.

Each process has a datagram socket in a temporary directory of its own. A socket that refuses datagrams proves that its
process has ended, for whatever reason. A missing socket proves nothing, because somebody may have removed the
directory.
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
    """The state of a process, found out by sending a signal to the process."""

    ALIVE = "alive"
    GONE = "gone"
    UNKNOWN = "unknown"


class ChangeSignal:
    """The socket on which this process receives signals, which are datagrams from other processes.

    Signals call `on_ring` on the event loop; several signals that have arrived together cause one call.
    """

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
        """Close the socket; afterwards, this process no longer receives the datagrams of other processes."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        shutil.rmtree(self._directory, ignore_errors=True)


def ring(address: str) -> Answer:
    """Wake the process at `address`; return whether the process is alive.

    The result is UNKNOWN if the socket is missing, or if this process has no file descriptors left.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
            bell.sendto(_RING, address)
    except BlockingIOError:
        return Answer.ALIVE  # The process exists, but its queue of signals is full.
    except ConnectionRefusedError:
        return Answer.GONE
    except OSError:
        return Answer.UNKNOWN
    return Answer.ALIVE


def clear_away(address: str) -> None:
    """Remove the socket of a process that has ended, and the directory of the socket."""
    with contextlib.suppress(OSError):
        os.unlink(address)
        os.rmdir(os.path.dirname(address))
