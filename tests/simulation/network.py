"""The network between machines: bytes in order or a broken connection, delays, and directions that can be cut.

A request goes through the broker's real dispatcher and handlers. What is on its way while a direction is cut waits for
it to be mended, as TCP's would, unless somebody loses patience first. A process that ends breaks its connections.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from barnabas_broker.handlers.exchange import CloseConnection
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.parts import FileSlice, Part
from simulation.loop import Host, SimulatedLoop

SIZE_BYTES: Final = 4
RETRY_S: Final = 0.05

Dispatch = Callable[["Channel", memoryview, int, int], None]


class Server:
    """A broker's process, as the network sees it."""

    def __init__(self, host: Host, dispatch: Dispatch) -> None:
        self.host = host
        self.dispatch = dispatch
        self.channels: dict[Channel, None] = {}


class Network:
    """`servers` by the names of their machines; only running processes are in it."""

    def __init__(self, loop: SimulatedLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.servers: dict[str, Server] = {}
        self.cut: set[tuple[str, str]] = set()
        """Directions (from, to) in which nothing arrives."""
        self.slowness = 1.0

    def delay_s(self) -> float:
        """Mostly short, now and then long."""
        usual = self.random.uniform(0.0001, 0.002)
        return self.slowness * (usual if self.random.random() < 0.97 else self.random.uniform(0.002, 0.2))

    def take_down(self, name: str, *, silently: bool = False) -> None:
        """A process has ended; its peers hear of it, unless its machine is gone, too."""
        server = self.servers.pop(name, None)
        if server is None:
            return
        for channel in list(server.channels):
            if not silently:
                channel.connection.breaks("reset by peer")

    def connect(self, source: Host, target: str, on_closed: Callable[[str], None]) -> "Connection":
        """From a machine to the process at `target`."""
        return Connection(self, source, target, on_closed)


class _Lane:
    """One direction of a connection: deliveries happen in the order in which they were sent."""

    def __init__(self, network: Network, source: str, target: str) -> None:
        self._network = network
        self._way = source, target
        self._queue: deque[tuple[Host, Callable[[], object]]] = deque()
        self._is_busy = False

    def deliver(self, host: Host, arrive: Callable[[], object]) -> None:
        """`arrive` is called on the receiving machine, later."""
        self._queue.append((host, arrive))
        if not self._is_busy:
            self._is_busy = True
            self._network.loop.call_later(self._network.delay_s(), self._next)

    def _next(self) -> None:
        network = self._network
        if self._way in network.cut:
            network.loop.call_later(RETRY_S, self._next)
            return
        host, arrive = self._queue.popleft()
        network.loop.call_soon(arrive, context=host.context)
        self._is_busy = bool(self._queue)
        if self._is_busy:
            network.loop.call_later(network.delay_s() / 10, self._next)


class Connection:
    """The requesting end. A `replication.links.Link`."""

    def __init__(self, network: Network, source: Host, target: str, on_closed: Callable[[str], None]) -> None:
        self._network = network
        self._source = source
        self._on_closed: Callable[[str], None] | None = on_closed
        self._waiting: deque[Callable[[memoryview], None]] = deque()
        self._out = _Lane(network, source.name, target)
        self._back = _Lane(network, target, source.name)
        server = network.servers.get(target)
        self.channel: Channel | None = None
        if server is None:
            network.loop.call_later(network.delay_s(), lambda: self.breaks("refused"))
        else:
            self.channel = Channel(self, server, source.name)

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        """A framed request; the answer without its size."""
        channel = self.channel
        if channel is None:
            return
        self._waiting.append(on_response)
        data = bytes(frame)
        self._out.deliver(channel.server.host, lambda: channel.receive(data))

    def answer(self, data: bytes) -> None:
        """The server's end has sent a response."""
        self._back.deliver(self._source, lambda: self._answered(data))

    def _answered(self, data: bytes) -> None:
        if self._on_closed is not None and self._waiting:
            self._waiting.popleft()(memoryview(bytearray(data))[SIZE_BYTES:])

    def breaks(self, reason: str) -> None:
        """Both ends will notice."""
        on_closed, self._on_closed = self._on_closed, None
        self._waiting.clear()
        self._leave_channel()
        if on_closed is not None:
            self._network.loop.call_later(
                self._network.delay_s(), lambda: on_closed(reason), context=self._source.context
            )

    def close(self) -> None:
        """From this end: no callback comes any more."""
        self._on_closed = None
        self._waiting.clear()
        self._leave_channel()

    def _leave_channel(self) -> None:
        if self.channel is not None:
            self.channel.is_closed = True
            self.channel.server.channels.pop(self.channel, None)
            self.channel = None


@dataclass
class Late:
    """An answer's place among the others; `parts` is None until it is there."""

    mutes: bool
    parts: list[Part] | None = None


class Channel:
    """The broker's end of a connection: what handlers answer through."""

    listener_name = "PLAINTEXT"

    def __init__(self, connection: Connection, server: Server, peer: str) -> None:
        self.connection = connection
        self.server = server
        self.peer = peer
        self.is_closed = False
        self._requests: deque[bytes] = deque()
        self._late: deque[Late] = deque()
        server.channels[self] = None

    def receive(self, frame: bytes) -> None:
        """A request has arrived."""
        self._requests.append(frame)
        self._go_on()

    def _go_on(self) -> None:
        while self._requests and not any(each.mutes for each in self._late) and not self.is_closed:
            buffer = memoryview(bytearray(self._requests.popleft()))
            try:
                self.server.dispatch(self, buffer, SIZE_BYTES, len(buffer))
            except (MalformedRequest, CloseConnection) as error:
                self.close(str(error))

    def respond(self, parts: list[Part]) -> None:
        self._late.append(Late(mutes=False, parts=parts))
        self._answer()

    def defer(self, *, reads_on: bool = False) -> Callable[[list[Part]], None]:
        late = Late(mutes=not reads_on)
        self._late.append(late)

        def respond(parts: list[Part]) -> None:
            late.parts = parts
            self._answer()
            self._go_on()

        return respond

    def _answer(self) -> None:
        """In the order of the requests."""
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
            self.connection.breaks(reason or "closed")


def _bytes_of(part: Part) -> bytes:
    return part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else bytes(part)
