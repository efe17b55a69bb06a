"""A port that accepts connections in small numbers at a time, and passes them on as sockets."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

BACKLOG: Final = 1024
"""The connections that wait in the kernel. If they were few, a flood would keep other clients from connecting."""
ACCEPTS_MAX: Final = 64
"""The connections that one turn of the event loop accepts."""
PAUSE_S: Final = 0.1
"""The pause after the system could not accept a connection, for example because all descriptors are in use."""


class Listening:
    """The sockets of a port; `accepted` gets each connection and the host of its client."""

    def __init__(self, accepted: Callable[[socket.socket, str], None]) -> None:
        self._accepted = accepted
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int) -> int:
        """Listen and return the port; the system chooses a port if `port` is 0.

        An empty host means all addresses of IPv4 and IPv6. Raise OSError if the address is taken or invalid.
        """
        loop = asyncio.get_running_loop()
        try:
            bound = await loop.create_server(asyncio.Protocol, host or None, port, start_serving=False)
        except UnicodeError as error:  # The host name is invalid: a label is empty or too long.
            raise OSError(f"{host} is not a host name: {error}") from error
        self._sockets = [each.dup() for each in bound.sockets]
        bound.close()
        for each in self._sockets:
            each.setblocking(False)
            each.listen(BACKLOG)
            loop.add_reader(each, self._accept, each)
        return int(self._sockets[0].getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        loop = asyncio.get_running_loop()
        for each in self._sockets:
            loop.remove_reader(each)
            each.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_MAX):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.error("the HTTP listener cannot accept a connection: %s", error)
                asyncio.get_running_loop().remove_reader(listening)
                asyncio.get_running_loop().call_later(PAUSE_S, self._resume, listening)
                return
            connection.setblocking(False)
            self._accepted(connection, address[0])

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)
