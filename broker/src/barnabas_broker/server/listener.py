"""Accepts connections, counts them against the limits, closes the idle ones."""

import asyncio
import errno
import logging
import socket
from typing import Final

from barnabas_broker.server.buffers import BufferPool
from barnabas_broker.server.connection import SCRATCH_BYTES, Connection, Dispatch

log = logging.getLogger(__name__)

BACKLOG: Final = 4096
"""asyncio's own 100 makes 5,000 clients that connect at once wait 40 s."""
ACCEPTS_PER_TURN: Final = 128
ACCEPT_RETRY_S: Final = 0.5
IDLE_LOOKS: Final = 10
"""Looks at every connection in connections.max.idle.ms: so a request need not ask for the time."""
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener:
    """All sockets of the Kafka listeners of one broker, on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Dispatch,
        *,
        request_bytes_max: int,
        queued_bytes_max: int,
        idle_s_max: float,
        connections_max: int,
    ) -> None:
        self._loop = loop
        self._dispatch = dispatch
        self._request_bytes_max = request_bytes_max
        self._idle_s_max = idle_s_max
        self._connections_max = connections_max
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.pool = BufferPool(queued_bytes_max)
        self._sockets: dict[socket.socket, str] = {}
        self.connections: set[Connection] = set()
        self._idle_check: asyncio.TimerHandle | None = None
        self._bytes_sent_by_closed = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes sent to clients since the start."""
        return self._bytes_sent_by_closed + sum(connection.bytes_sent for connection in self.connections)

    def bind(self, listener_name: str, host: str, port: int) -> int:
        """Take the address without accepting yet; the port, the one chosen where `port` is 0. OSError if taken."""
        family = socket.AF_INET6 if ":" in host or not host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind((host, port))
        except OSError:
            listening.close()
            raise
        listening.setblocking(False)
        self._sockets[listening] = listener_name
        return int(listening.getsockname()[1])

    def start(self) -> None:
        """Accept connections from now on."""
        for listening in self._sockets:
            listening.listen(BACKLOG)
            self._loop.add_reader(listening.fileno(), self._accept, listening)
        self._schedule_idle_check()

    def stop_accepting(self) -> None:
        """Free the addresses; connections that are open live on."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()

    def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        if self._idle_check is not None:
            self._idle_check.cancel()
        for connection in list(self.connections):
            connection.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                client_socket, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            self._welcome(client_socket, address, self._sockets[listening])

    def _welcome(self, client_socket: socket.socket, address: tuple[str, int], listener_name: str) -> None:
        if len(self.connections) >= self._connections_max:
            log.warning("refused a connection from %s: max.connections=%d are open", address[0], self._connections_max)
            client_socket.close()
            return
        client_socket.setblocking(False)
        client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections.add(
            Connection(
                self._loop,
                client_socket,
                f"{address[0]}:{address[1]}",
                listener_name,
                self._dispatch,
                self._scratch,
                self.pool,
                self._request_bytes_max,
                self._forget,
            )
        )

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Out of file descriptors or memory: accept again in a while instead of spinning; else the client just left."""
        if error.errno not in OUT_OF_FILES:
            return
        log.error("cannot accept connections: %s; trying again in %s s", error, ACCEPT_RETRY_S)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(ACCEPT_RETRY_S, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _forget(self, connection: Connection) -> None:
        self._bytes_sent_by_closed += connection.bytes_sent
        self.connections.discard(connection)

    def _schedule_idle_check(self) -> None:
        self._idle_check = self._loop.call_later(self._idle_s_max / IDLE_LOOKS, self._close_idle)

    def _close_idle(self) -> None:
        """Close who has been silent for connections.max.idle.ms, as Kafka does."""
        for connection in list(self.connections):
            connection.idle_looks = 0 if connection.was_active else connection.idle_looks + 1
            connection.was_active = False
            if connection.idle_looks > IDLE_LOOKS:
                connection.close()
        self._schedule_idle_check()
