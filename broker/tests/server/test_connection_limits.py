"""The limits on connections, also of one address, and on the rate of new ones, over real sockets."""

import asyncio
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count

import pytest

from barnabas_broker.app.wiring import AddressOverrides
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.connection_bounds import Admission, ConnectionLimits
from barnabas_broker.server.listener import TURNED_AWAY_MAX, Listener, SocketSettings
from barnabas_core.config.definitions import INT_MAX
from barnabas_core.loop_turns import ACCEPTED_CONNECTIONS, CONNECTION_S, LOOP_SHARE
from harness.deadline import PATIENCE_S

STRANGERS = 1_500
GONE = ACCEPTED_CONNECTIONS - 1
READINGS_IN_A_TURN = 100
RESTING = 100
RESTING_BYTES_MAX = 3_000
"""The most that a connection takes without buffers, its client's socket included."""
NO_LIMITS = ConnectionLimits(INT_MAX, INT_MAX, {}, INT_MAX)


class Limits:
    """The current limits; a test changes them."""

    def __init__(self, **changes: object) -> None:
        self.now = NO_LIMITS._replace(**changes)  # type: ignore[arg-type]

    def __call__(self) -> ConnectionLimits:
        return self.now


def echo(connection: Connection, buffer: memoryview, start: int, end: int) -> None:
    connection.answer([buffer[start - 4 : end]])


@asynccontextmanager
async def listening(
    limits: Limits, protected: str | None = None, wait_ms: Callable[[str], int] = lambda _: 0
) -> AsyncIterator[tuple[Listener, dict[str, int]]]:
    settings = SocketSettings(1_000_000, 64_000_000, 600.0, protected_listener=protected)
    listener = Listener(asyncio.get_running_loop(), echo, settings, limits, wait_ms=wait_ms)
    ports = {name: listener.bind(name, "127.0.0.1", 0) for name in ("CLIENTS", "BROKERS")}
    listener.start()
    try:
        yield listener, ports
    finally:
        listener.close()


async def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    made = socket.socket()
    made.setblocking(False)
    made.bind((source, 0))
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


async def answers(client: socket.socket, within_s: float = 5.0) -> bool | None:
    """True if a request is answered, False if the connection is closed, None if nothing comes in that time."""
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(client, b"\0\0\0\1x")
        async with asyncio.timeout(within_s):
            return bool(await loop.sock_recv(client, 100))
    except TimeoutError:
        return None
    except ConnectionError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_connection_that_rests_after_an_answer_takes_little_memory() -> None:
    async with listening(Limits()) as (listener, ports):
        clients = [await connect(ports["CLIENTS"]) for _ in range(RESTING)]
        await until(lambda: len(listener.connections) == RESTING)
        tracemalloc.start()
        try:
            clients += [await connect(ports["CLIENTS"]) for _ in range(RESTING)]
            assert all([await answers(client) for client in clients])
            taken_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        for client in clients:
            client.close()
    assert taken_bytes / RESTING < RESTING_BYTES_MAX


async def test_a_connection_beyond_max_connections_waits_until_another_closes() -> None:
    async with listening(Limits(max_connections=2)) as (listener, ports):
        first, second, third = [await connect(ports["CLIENTS"]) for _ in range(3)]
        assert await answers(first)
        assert await answers(second)
        assert await answers(third, 0.2) is None
        assert len(listener.connections) == 2
        first.close()
        assert await asyncio.get_running_loop().sock_recv(third, 100) == b"\0\0\0\1x"


async def test_max_connections_can_be_changed_while_the_broker_runs() -> None:
    limits = Limits(max_connections=1)
    async with listening(limits) as (listener, ports):
        clients = [await connect(ports["CLIENTS"]) for _ in range(5)]
        await until(lambda: len(listener.connections) == 1)
        limits.now = NO_LIMITS._replace(max_connections=4)
        await until(lambda: len(listener.connections) == 4)
        limits.now = NO_LIMITS._replace(max_connections=2)
        await until(lambda: len(listener.connections) == 2)
        assert clients


async def test_a_connection_of_a_broker_replaces_the_client_that_was_idle_longest() -> None:
    async with listening(Limits(max_connections=2), protected="BROKERS") as (listener, ports):
        idle, busy = [await connect(ports["CLIENTS"]) for _ in range(2)]
        assert await answers(idle)
        assert await answers(busy)
        next(iter(listener.connections)).idle_checks = 3
        broker = await connect(ports["BROKERS"])
        assert await answers(broker)
        assert await asyncio.get_running_loop().sock_recv(idle, 100) == b""
        assert await answers(busy)


async def test_one_address_has_no_more_connections_than_its_limit() -> None:
    limits = Limits(max_connections_per_ip=1, max_connections_per_ip_overrides={"127.0.0.2": 2})
    async with listening(limits) as (listener, ports):
        kept = [await connect(ports["CLIENTS"]), await connect(ports["CLIENTS"], "127.0.0.2")]
        kept.append(await connect(ports["CLIENTS"], "127.0.0.2"))
        assert all([await answers(client) for client in kept])
        for source in ("127.0.0.1", "127.0.0.2"):
            assert await answers(await connect(ports["CLIENTS"], source)) is False
        kept.pop(0).close()
        await until(lambda: len(listener.connections) == 2)
        assert await answers(await connect(ports["CLIENTS"]))


def test_connections_are_accepted_at_the_rate_limit_and_those_of_brokers_at_once() -> None:
    admission, limits = Admission("BROKERS"), NO_LIMITS._replace(max_connection_creation_rate=10)
    accepted_at_s = []
    for hundredth in range(300):
        now_s = 1000 + hundredth / 100
        if admission.wait_s("CLIENTS", limits, now_s) == 0:
            admission.opened("10.0.0.1")
            accepted_at_s.append(now_s)
        assert admission.wait_s("BROKERS", limits, now_s) == 0
    assert 10 + 28 <= len(accepted_at_s) <= 10 + 30


async def test_limits_of_named_hosts_apply_to_their_addresses() -> None:
    overrides = AddressOverrides(asyncio.get_running_loop())
    given = {"localhost": 7, "10.0.0.1": 8, "no.such.host.invalid": 9}
    assert overrides.by_address(given)["10.0.0.1"] == 8
    await until(lambda: overrides.by_address(given).get("127.0.0.1") == 7)


async def test_a_limit_of_an_invalid_host_name_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    overrides = AddressOverrides(asyncio.get_running_loop())
    overrides.by_address({"no..name": 7})
    await until(lambda: "the limit of host no..name in max.connections.per.ip.overrides has no effect" in caplog.text)


async def test_clients_over_the_quota_of_their_address_take_no_slots_and_few_sockets() -> None:
    """No other client loses its connection to them, and brokers have no quota on a listener of their own."""
    async with listening(Limits(), protected="BROKERS", wait_ms=lambda _: 3_600_000) as (listener, ports):
        broker = await connect(ports["BROKERS"])
        assert await answers(broker)
        turned_away = [await connect(ports["CLIENTS"]) for _ in range(TURNED_AWAY_MAX + 1)]
        assert await answers(turned_away[0]) is False
        assert listener._admission.total == 1
        listener.close()
        assert await answers(turned_away[-1]) is False
        for each in (broker, *turned_away):
            each.close()


async def test_clients_that_have_gone_are_closed_unserved_before_those_who_wait_behind_them() -> None:
    served: list[str] = []

    def serve(address: str) -> int:
        served.append(address)
        return 0

    async with listening(Limits(), wait_ms=serve) as (listener, ports):

        def wait_on() -> None:
            listener._share.leave(wait_on)

        wait_on()  # A connection always waits for its turn, so few others are accepted.
        for number in range(GONE):
            with socket.create_connection(("127.0.0.1", ports["CLIENTS"])) as gone:
                if number % 2:  # The broker sees a reset instead of the end.
                    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client = await connect(ports["CLIENTS"])
        assert await answers(client) is True
        assert served == ["127.0.0.1"]
        client.close()


async def test_clients_that_disconnect_at_once_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    readings, accepted, most = count(), list[str](), 0

    def now_s() -> float:
        return next(readings) * CONNECTION_S / READINGS_IN_A_TURN

    def accept(address: str) -> int:
        accepted.append(address)
        return 0

    async with listening(Limits(), wait_ms=accept) as (listener, ports), asyncio.timeout(PATIENCE_S):
        for _ in range(STRANGERS):
            with socket.create_connection(("127.0.0.1", ports["CLIENTS"])) as stranger:
                stranger.sendall(b"\0")
        # In each turn the connections use up their share, and then have time to close a few.
        monkeypatch.setattr(LOOP_SHARE, "ends_s", 0.0)
        monkeypatch.setattr(LOOP_SHARE, "now_s", now_s)
        monkeypatch.setattr("barnabas_broker.server.connection.perf_counter", now_s)
        while len(accepted) < STRANGERS or listener.connections:
            await asyncio.sleep(0)
            most = max(most, len(listener.connections))
    assert most <= 3 * ACCEPTED_CONNECTIONS
