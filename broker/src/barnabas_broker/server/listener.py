"""Accept connections within the limits (`admission`), and close idle and slow connections."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Collection, Mapping
from functools import partial
from heapq import nlargest
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_broker.handlers.channel import Client, user_principal
from barnabas_broker.server.answers import SLOW_CHECK_S, SlowClients
from barnabas_broker.server.connection import SCRATCH_BYTES, Connection, Dispatch, TurnShare
from barnabas_broker.server.connection_bounds import Admission, BufferPool, ConnectionLimits, plain_address
from barnabas_broker.server.sasl_session import TLS, AuthenticationCounts
from barnabas_broker.server.tls_stream import Handshakes, ServerTls
from barnabas_broker.server.transport import ColdReads, PlainTransport, Transport
from barnabas_core.loop_turns import ACCEPTED_CONNECTIONS, ACCEPTED_WHILE_BEHIND

log = logging.getLogger(__name__)

BACKLOG_MIN: Final = 4096
"""The smallest backlog; with Kafka's 50, 5,000 clients that connect at once would wait for 40 s."""
ACCEPT_RETRY_S: Final = 0.5
IDLE_CHECKS: Final = 10
"""The number of idle checks within connections.max.idle.ms.

A connection is idle if more checks than this in a row find no activity; comparing times would need a clock read for
each request.
"""
IDLE_CHECK_S_MIN: Final = 0.1
IDLE_CHECK_S: Final = 60.0
"""The period of idle checks in seconds if connections.max.idle.ms sets no limit."""
BETWEEN_BROKERS_BYTES: Final = 64 * 1024 * 1024
"""The limit in bytes for buffers with requests on a listener that only brokers use."""
TURNED_AWAY_MAX: Final = 32
"""The maximum number of refused sockets that wait to be closed.

Refused sockets use the few file descriptors that are reserved neither for segments nor for clients.
"""
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class SocketSettings(NamedTuple):
    """The limits of sockets and requests; None where Kafka's setting is -1, for "system default" or "never"."""

    request_bytes_max: int
    queued_bytes_max: int
    idle_s_max: float | None
    backlog: int = BACKLOG_MIN
    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    protected_listener: str | None = None
    """The name of the listener between brokers; None if clients use the same listener."""


TlsOf = Callable[[str], ServerTls | None]
"""A function that returns the current TLS context of a listener; None for a listener without TLS."""


def _has_ipv6() -> bool:
    """True if the kernel was not started without IPv6."""
    try:
        socket.socket(socket.AF_INET6).close()
    except OSError:
        return False
    return True


class Listener:
    """All sockets of the Kafka listeners of one broker, on one event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        dispatch: Dispatch,
        settings: SocketSettings,
        limits: Callable[[], ConnectionLimits],
        tls_of: TlsOf = lambda _: None,
        sessions: Mapping[str, Callable[[Connection], object]] = MappingProxyType({}),
        counts: Mapping[str, AuthenticationCounts] = MappingProxyType({}),
        wait_ms: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """Create the listener; `sessions` maps a listener name to the function that begins a SASL session.

        `wait_ms` is called with the address of each new connection, and counts the connection. It returns the throttle
        time if the address exceeds its connection creation quota (KIP-612), otherwise 0.
        """
        self._loop = loop
        self._tls_of = tls_of
        self.handshakes = Handshakes(loop)
        self._dispatch = dispatch
        self._settings = settings
        self._limits = limits
        self._sessions = sessions
        self._counts = counts
        self._wait_ms = wait_ms
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.pool = BufferPool(settings.queued_bytes_max, loop.call_soon)
        self._brokers_pool = BufferPool(min(settings.queued_bytes_max, BETWEEN_BROKERS_BYTES), loop.call_soon)
        self.slow_clients = SlowClients(self.pool, loop.time, loop.call_soon)
        self._slow_brokers = SlowClients(self._brokers_pool, loop.time, loop.call_soon)
        self.cold_reads = ColdReads(loop)
        self._share = TurnShare(loop.call_soon)
        self._admission = Admission(settings.protected_listener)
        self._sockets: dict[socket.socket, str] = {}
        self._not_accepting: set[socket.socket] = set()
        self.connections: dict[Connection, str] = {}
        """The address of each connection, in the order in which the connections were accepted."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._turned_away: dict[socket.socket, asyncio.TimerHandle] = {}
        self._bytes_sent_by_closed = 0

    @property
    def bytes_sent(self) -> int:
        """The number of bytes sent to clients since the start."""
        return self._bytes_sent_by_closed + sum(connection.bytes_sent for connection in self.connections)

    def bind(self, listener_name: str, host: str, port: int) -> int:
        """Bind the address without accepting; return the port, which the system chooses if `port` is 0.

        An empty host binds all addresses of IPv4 and IPv6. Raise OSError if the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in host or (not host and _has_ipv6()) else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            self._size_buffers(listening)
            listening.bind((host, port))
        except (OSError, TypeError) as error:
            listening.close()
            if isinstance(error, TypeError):  # The host name is invalid: a label is empty or too long.
                raise OSError(f"{host} is not a host name: {error}") from error
            raise
        listening.setblocking(False)
        self._sockets[listening] = listener_name
        return int(listening.getsockname()[1])

    def _size_buffers(self, listening: socket.socket) -> None:
        """Set the buffer sizes on the listening socket, because accepted sockets inherit them."""
        for option, size in (
            (socket.SO_SNDBUF, self._settings.send_buffer_bytes),
            (socket.SO_RCVBUF, self._settings.receive_buffer_bytes),
        ):
            if size is not None:
                listening.setsockopt(socket.SOL_SOCKET, option, size)

    def start(self) -> None:
        """Begin to accept connections, and to check for idle and slow clients."""
        for listening in self._sockets:
            listening.listen(max(self._settings.backlog, BACKLOG_MIN))
            self._loop.add_reader(listening.fileno(), self._accept, listening)
        self._come_round("idle", self._idle_check_s, self._close_idle)
        self._come_round("slow", SLOW_CHECK_S, self._close_slow)

    def stop_accepting(self) -> None:
        """Close the listening sockets; open connections remain."""
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        self._sockets.clear()
        self._not_accepting.clear()

    def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        for timer in self._timers.values():
            timer.cancel()
        self.handshakes.close()
        for turned_away in list(self._turned_away):
            self._close_turned_away(turned_away)
        for connection in list(self.connections):
            connection.close()

    def close_authenticated(self, user: str, mechanism: str, valid: Collection[bytes]) -> None:
        """Close the connections of a user whose password for a SASL mechanism is no longer valid.

        The connections that have authenticated with one of the `valid` verifiers stay.
        """
        principal = user_principal(user)
        for connection in list(self.connections):
            client = connection.client
            is_of_user = client.mechanism == mechanism and client.principal == principal
            if is_of_user and client.verifier_id not in valid:
                connection.close(f"the credential of {user!r} for {mechanism} has changed")

    def _accept(self, listening: socket.socket) -> None:
        self._accept_some(listening, self._sockets[listening], self._limits())
        if self._admission.is_protected(self._sockets[listening]):
            self._close_excess()

    def _accept_some(self, listening: socket.socket, name: str, limits: ConnectionLimits) -> None:
        # Clients that write and disconnect in a loop would otherwise pile up before everybody who logs in.
        left = ACCEPTED_WHILE_BEHIND if self._share.is_behind else ACCEPTED_CONNECTIONS
        for _ in range(ACCEPTED_CONNECTIONS):
            wait_s = self._admission.wait_s(name, limits, self._loop.time())
            if wait_s > 0:
                self._accept_later(listening, wait_s)
                return
            try:
                client_socket, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            if _has_gone(client_socket):
                client_socket.close()
                continue
            self._welcome(client_socket, address, name, limits)
            left -= 1
            if not left:
                return

    def _welcome(
        self, client_socket: socket.socket, address: tuple[str, int], listener_name: str, limits: ConnectionLimits
    ) -> None:
        host = plain_address(address[0])
        self._admission.opened(host)
        if self._admission.is_over_address_limit(host, limits):
            self._admission.closed(host)
            client_socket.close()
            log.warning(
                "refused a connection from %s: max.connections.per.ip=%d is reached", host, limits.of_address(host)
            )
            return
        wait_ms = 0 if self._admission.is_protected(listener_name) else self._wait_ms(host)
        if wait_ms:
            self._admission.closed(host)
            self._turn_away(client_socket, wait_ms / 1000)
            return
        client_socket.setblocking(False)
        client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client = Client(listener_name, f"{address[0]}:{address[1]}")
        tls = self._tls_of(listener_name)
        if tls is None:
            self._serve(PlainTransport(self._loop, client_socket), client, host)
            return
        self.handshakes.begin(
            client_socket,
            tls,
            client.address,
            lambda transport, principal: self._serve(transport, client._replace(principal=principal), host),
            partial(self._handshake_failed, listener_name, host),
            is_protected=self._admission.is_protected(listener_name),
        )

    def _handshake_failed(self, listener_name: str, host: str) -> None:
        self._admission.closed(host)
        if listener_name in self._counts:
            self._counts[listener_name].failures[TLS] += 1

    def _serve(self, transport: Transport, client: Client, host: str) -> None:
        is_broker = self._admission.is_protected(client.listener_name)
        connection = Connection(
            self._loop,
            transport,
            client,
            self._dispatch,
            self._scratch,
            self._brokers_pool if is_broker else self.pool,
            self._slow_brokers if is_broker else self.slow_clients,
            self.cold_reads,
            self._share,
            self._settings.request_bytes_max,
            self._forget,
        )
        self.connections[connection] = host
        if client.listener_name in self._sessions:
            self._sessions[client.listener_name](connection)

    def _turn_away(self, client_socket: socket.socket, wait_s: float) -> None:
        """Close the socket only after `wait_s`, because its client would connect again at once.

        If too many sockets wait to be closed, the oldest is closed now.
        """
        self._turned_away[client_socket] = self._loop.call_later(wait_s, self._close_turned_away, client_socket)
        if len(self._turned_away) > TURNED_AWAY_MAX:
            self._close_turned_away(next(iter(self._turned_away)))

    def _close_turned_away(self, client_socket: socket.socket) -> None:
        self._turned_away.pop(client_socket).cancel()
        client_socket.close()

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Accept again later if file descriptors or memory ran out; other errors mean that the client has gone."""
        if error.errno not in OUT_OF_FILES:
            return
        log.error("cannot accept connections: %s; trying again in %s s", error, ACCEPT_RETRY_S)
        self._accept_later(listening, ACCEPT_RETRY_S)

    def _accept_later(self, listening: socket.socket, wait_s: float) -> None:
        """Pause accepting for `wait_s` or until a connection closes; new clients wait in the kernel's backlog."""
        self._not_accepting.add(listening)
        self._loop.remove_reader(listening.fileno())
        self._loop.call_later(wait_s, self._accept_again, listening)

    def _accept_again(self, listening: socket.socket) -> None:
        if listening in self._not_accepting:
            self._not_accepting.discard(listening)
            self._loop.add_reader(listening.fileno(), self._accept, listening)

    def _forget(self, connection: Connection) -> None:
        self._bytes_sent_by_closed += connection.bytes_sent
        self._admission.closed(self.connections.pop(connection))
        for listening in tuple(self._not_accepting):
            self._accept_again(listening)

    def _come_round(self, name: str, period_s: float, check: Callable[[], None]) -> None:
        def run() -> None:
            check()
            self._come_round(name, period_s, check)

        self._timers[name] = self._loop.call_later(period_s, run)

    @property
    def _idle_check_s(self) -> float:
        idle_s_max = self._settings.idle_s_max
        return IDLE_CHECK_S if idle_s_max is None else max(idle_s_max / IDLE_CHECKS, IDLE_CHECK_S_MIN)

    def _close_idle(self) -> None:
        """Close connections that are idle for connections.max.idle.ms, even if they wait for a response, as Kafka does.

        If connections.max.idle.ms sets no limit, close only connections that are idle for ten minutes, from which the
        broker has stopped reading, and whose client has closed its side.
        """
        is_limited = self._settings.idle_s_max is not None
        for connection in list(self.connections):
            connection.count_idle()
            if connection.idle_checks > IDLE_CHECKS and (is_limited or _is_abandoned(connection)):
                connection.close()

    def _close_slow(self) -> None:
        self.slow_clients.check()
        self._slow_brokers.check()
        self.handshakes.check()
        self._close_excess()

    def _close_excess(self) -> None:
        """Close connections above max.connections: first unfinished handshakes, then the connections idle for longest.

        As in Kafka, connections on a listener that only brokers use stay open.
        """
        limits = self._limits()
        excess = min(self._admission.excess(limits), ACCEPTED_CONNECTIONS)
        excess -= self.handshakes.close_some(excess)
        if not excess:
            return
        clients = [each for each in self.connections if not self._admission.is_protected(each.client.listener_name)]
        for connection in nlargest(excess, clients, key=lambda each: (each.idle_checks, not each.was_active)):
            connection.close(f"more connections than max.connections={limits.max_connections} are open")


def _has_gone(accepted: socket.socket) -> bool:
    """True if the client has closed or reset the connection without sending a byte.

    Clients that connect and close in a loop fill the backlog, so each of them must cost others as little as possible.
    """
    try:
        return not accepted.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


def _is_abandoned(connection: Connection) -> bool:
    """True if the client has closed its side, reading is paused and no response is being sent."""
    return not connection.waits_for_client and not connection.answers.is_sending and connection.has_ended()
