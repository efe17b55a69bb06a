"""The network between machines: bytes in order or a broken connection, delays, and directions that can be cut.

A request goes through the broker's real dispatcher and handlers. What is on its way while a direction is cut waits for
it to be mended, as TCP's would. A process that ends breaks its connections.

Who loses patience and closes a connection does not call back what it has sent: the broker may still get it, after what
was sent on a later connection. So a request that is sent again may be carried out twice, and out of order.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from barnabas_broker.handlers.batch_trust import ConnectionTrust
from barnabas_broker.handlers.channel import Client, user_principal
from barnabas_broker.handlers.large_responses import CloseConnection
from barnabas_broker.server.answers import LateAnswer
from barnabas_broker.server.peer_link import REFUSAL_S
from barnabas_broker.wire.framing import FileSlice, MalformedRequest, Part
from simulation.loop import Host, SimulatedLoop

SIZE_BYTES: Final = 4
RETRY_S: Final = 0.05
RESET_SHARE: Final = 0.3
"""The share of a client's closed connections whose bytes on the way are thrown away."""
LAG_SHARE: Final = 0.4
"""The share of the others whose bytes on the way take so long that later ones overtake them."""
LAG_S_MAX: Final = 6.0

Dispatch = Callable[["Channel", memoryview, int, int], None]


class Server:
    """A broker's process as the network sees it."""

    def __init__(self, host: Host, dispatch: Dispatch) -> None:
        self.host = host
        self.dispatch = dispatch
        self.channels: dict[Channel, None] = {}


class Network:
    """The network. `servers` has the running processes by the names of their machines."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.servers: dict[str, Server] = {}
        self.without_power: set[str] = set()
        """The names of machines that answer nothing."""
        self.cut: set[tuple[str, str]] = set()
        """The directions (from, to) in which nothing arrives."""
        self.slowness = 1.0
        self.connections: dict[Connection, None] = {}
        """The connections that the end which made them has not closed."""
        self.lagging: dict[_Lane, asyncio.TimerHandle] = {}

    def heal(self) -> None:
        """Let everything arrive in good time, also what is on its way."""
        self.cut.clear()
        self.slowness = 1.0
        for lane in list(self.lagging):
            lane.catch_up()

    def delay_s(self) -> float:
        """Return a delay: mostly short, now and then long."""
        usual = self.random.uniform(0.0001, 0.002)
        return self.slowness * (usual if self.random.random() < 0.97 else self.random.uniform(0.002, 0.2))

    def take_down(self, name: str, *, silently: bool = False) -> None:
        """End a process: its peers notice, unless its machine is gone, too."""
        server = self.servers.pop(name, None)
        if silently:
            self.without_power.add(name)
            return
        for channel in list(server.channels) if server is not None else ():
            channel.connection.breaks("reset by peer")
        for connection in [each for each in self.connections if each.source.name == name]:
            connection.close()

    async def refuses(self, source: str, target: str) -> bool:
        """True if a machine says that no process listens; nothing comes back over a direction that is cut."""
        await asyncio.sleep(self.delay_s())
        if target in self.without_power or self.cut & {(source, target), (target, source)}:
            await asyncio.sleep(REFUSAL_S)
            return False
        return target not in self.servers

    def connect(self, source: Host, target: str, on_closed: Callable[[str], None]) -> "Connection":
        """Connect a machine to the process at `target`."""
        return Connection(self, source, target, on_closed)


class _Lane:
    """One direction of a connection, which delivers in the order in which it was sent."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._way = source, target
        self._queue: deque[tuple[Host, Callable[[], object]]] = deque()
        self._is_busy = False
        self._is_held = False
        """True if something that lags is due."""

    def lag(self) -> None:
        """Delay everything on its way, and everything after it."""
        network = self._network
        if self not in network.lagging:
            delay_s = network.random.uniform(0, LAG_S_MAX)
            network.lagging[self] = network.loop.call_later(delay_s, self.catch_up)

    def catch_up(self) -> None:
        """Bring the lane back to the usual delays."""
        self._network.lagging.pop(self).cancel()
        if self._is_held:
            self._is_held = False
            self._next()

    def deliver(self, host: Host, arrive: Callable[[], object]) -> None:
        """Call `arrive` on the receiving machine, later."""
        self._queue.append((host, arrive))
        if not self._is_busy:
            self._is_busy = True
            self._network.loop.call_later(self._network.delay_s(), self._next)

    def _next(self) -> None:
        network = self._network
        if self in network.lagging:
            self._is_held = True
            return
        if self._way in network.cut:
            network.loop.call_later(RETRY_S, self._next)
            return
        host, arrive = self._queue.popleft()
        network.loop.call_soon(arrive, context=host.context)
        self._is_busy = bool(self._queue)
        if self._is_busy:
            network.loop.call_later(network.delay_s() / 10, self._next)


class Connection:
    """The requesting end of a connection: a `replication.links.Link`."""

    def __init__(self, network: Network, source: Host, target: str, on_closed: Callable[[str], None]) -> None:
        self._network = network
        self.source = source
        self._target = target
        self._on_closed: Callable[[str], None] | None = on_closed
        self._waiting: deque[Callable[[memoryview], None]] = deque()
        self._out = _Lane(network, source.name, target)
        self._back = _Lane(network, target, source.name)
        network.connections[self] = None
        server = network.servers.get(target)
        self.channel: Channel | None = None
        if server is None:
            network.loop.call_later(network.delay_s(), lambda: self.breaks("refused"))
        else:
            self.channel = Channel(self, server, source.name)

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        """Send a framed request; the callback gets the answer without its size."""
        channel, network = self.channel, self._network
        if channel is None:
            return
        if network.servers.get(self._target, channel.server) is not channel.server:
            # A machine that is up again after a power cut does not know the connection.
            network.loop.call_later(network.delay_s(), lambda: self.breaks("reset by peer"))
            return
        self._waiting.append(on_response)
        data = bytes(frame)
        self._out.deliver(channel.server.host, lambda: channel.receive(data))

    def answer(self, data: bytes) -> None:
        """Take a response that the server's end has sent."""
        if self.channel is not None:
            self._back.deliver(self.source, lambda: self._answered(data))

    def _answered(self, data: bytes) -> None:
        if self._on_closed is not None and self._waiting:
            self._waiting.popleft()(memoryview(bytearray(data))[SIZE_BYTES:])

    def breaks(self, reason: str) -> None:
        """Break: both ends will notice."""
        on_closed, channel = self._on_closed, self._leave()
        if channel is not None:
            channel.end()
        if on_closed is not None:
            self._network.loop.call_later(
                self._network.delay_s(), lambda: on_closed(reason), context=self.source.context
            )

    def close(self) -> None:
        """Close this end: no callback comes any more. Bytes on the way may still arrive."""
        channel, random = self._leave(), self._network.random
        if channel is None:
            return
        if random.random() < RESET_SHARE:
            channel.end()
            return
        if random.random() < LAG_SHARE:
            self._out.lag()
        self._out.deliver(channel.server.host, lambda: channel.receive(None))

    def on_server(self, server: Server, callback: Callable[[], object]) -> None:
        """Call it on the broker's machine, unless its process has ended."""
        self._network.loop.call_soon(callback, context=server.host.context)

    def _leave(self) -> "Channel | None":
        self._on_closed = None
        self._waiting.clear()
        self._network.connections.pop(self, None)
        channel, self.channel = self.channel, None
        return channel


class Channel:
    """The broker's end of a connection, through which handlers answer."""

    def __init__(self, connection: Connection, server: Server, peer: str) -> None:
        self.connection = connection
        self.server = server
        self.peer = peer
        self.client = Client("PLAINTEXT", peer, principal=user_principal(peer))
        self.trust: ConnectionTrust | None = None
        self.is_closed = False
        self.when_closed: list[Callable[[Channel], object]] = []
        self._requests: deque[bytes | None] = deque()
        self._large = memoryview(b"")
        """The request that is being dispatched, which its handling may keep."""
        self._late: deque[LateAnswer] = deque()
        self.deferred: list[LateAnswer] = []
        server.channels[self] = None

    def is_gone(self) -> bool:
        """True once nobody reads an answer: a client that closes a connection never reads from it again."""
        return self.is_closed or (bool(self._requests) and self._requests[0] is None)

    def receive(self, frame: bytes | None) -> None:
        """Take a request, or None if the other end is closed."""
        self._requests.append(frame)
        self._go_on()

    def _go_on(self) -> None:
        while self._requests and not any(each.mutes for each in self._late) and not self.is_closed:
            frame = self._requests.popleft()
            if frame is None:
                self.end()
                return
            buffer = memoryview(bytearray(frame))
            self._large = buffer[SIZE_BYTES:]
            try:
                self.server.dispatch(self, buffer, SIZE_BYTES, len(buffer))
            except (MalformedRequest, CloseConnection) as error:
                self.close(str(error))

    def answer_in_turns(self, answer: Callable[[memoryview], object]) -> None:
        answer(self._large)

    def request_is_read(self) -> None:
        """Do nothing: the request's bytes are its own."""

    def answer(self, parts: list[Part]) -> None:
        late = LateAnswer(mutes=False)
        late.parts = parts
        self._late.append(late)
        self._answer()

    def answer_soon(self, response: bytes | bytearray) -> None:
        self.answer([response])

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        late = LateAnswer(mutes=not reads_on)
        self._late.append(late)
        self.deferred.append(late)

        def send(parts: list[Part]) -> None:
            late.parts = parts
            if late.on_answer is not None:
                late.on_answer()
            self._answer()
            self._go_on()

        return send

    def _answer(self) -> None:
        """Send the answers in the order of the requests."""
        while self._late and self._late[0].parts is not None:
            parts = self._late.popleft().parts
            if parts and not self.is_closed:
                self._send(parts)

    def _send(self, parts: list[Part]) -> None:
        try:
            data = b"".join(_bytes_of(part) for part in parts)
        except OSError as error:
            self.close(str(error))
        else:
            self.connection.answer(data)

    def close(self, reason: str | None = None) -> None:
        if not self.is_closed:
            self.end()
            self.connection.breaks(reason or "closed")

    def end(self) -> None:
        """End it: nothing is read or sent any more."""
        self.is_closed = True
        self.server.channels.pop(self, None)
        ended, self.when_closed = self.when_closed, []
        for callback in ended:
            self.connection.on_server(self.server, partial(callback, self))


def _bytes_of(part: Part) -> bytes:
    return part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else bytes(part)
