"""Late responses keep their place in the order, whether the connection reads on meanwhile or not."""

import asyncio
import struct
from collections.abc import Callable
from socket import SO_LINGER, SOL_SOCKET, create_connection, create_server, socket

from hypothesis import given, settings
from hypothesis import strategies as st
from test_connection import answer, connected, framed

from barnabas_broker.server.answers import LATE_ANSWERS_MAX, LATE_BYTES_MAX
from barnabas_broker.server.connection import Connection
from barnabas_broker.wire.framing import Part

TURNS_MAX = 5000


class Lateness:
    """A dispatcher: the first byte of a request says how it is answered; `release` answers the late ones."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.outstanding: list[tuple[bytes, Callable[[list[Part]], None]]] = []

    def __call__(self, connection: Connection, buffer: memoryview, start: int, end: int) -> None:
        body = bytes(buffer[start:end])
        assert not any(each.startswith(b"mute") for each, _ in self.outstanding)
        self.taken.append(body)
        if body.startswith(b"now"):
            connection.answer([framed(body)])
        elif body.startswith(b"soon"):
            connection.answer_soon(bytearray(framed(body)))
        else:
            self.outstanding.append((body, connection.defer(reads_on=body.startswith(b"late"))))

    def release(self, index: int) -> None:
        body, answer = self.outstanding.pop(index % len(self.outstanding))
        answer([] if body.endswith(b"nothing") else [framed(body)])


async def turns(until: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if until():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never came true")


kinds = st.sampled_from(
    [(b"now", b""), (b"soon", b""), (b"late", b""), (b"mute", b""), (b"late", b" nothing"), (b"mute", b" nothing")]
)


@settings(max_examples=60)
@given(asked=st.lists(kinds, min_size=1, max_size=30), order=st.lists(st.integers(0, 99), min_size=1, max_size=30))
def test_responses_are_sent_in_the_order_of_the_requests_whichever_is_ready_first(
    asked: list[tuple[bytes, bytes]], order: list[int]
) -> None:
    bodies = [b"%s of %d%s" % (kind, number, rest) for number, (kind, rest) in enumerate(asked)]

    async def run() -> None:
        dispatch = Lateness()
        async with connected(dispatch) as (_, reader, writer):  # type: ignore[arg-type]
            writer.write(b"".join(map(framed, bodies)))
            released = 0
            while len(dispatch.taken) < len(bodies) or dispatch.outstanding:
                await turns(lambda: bool(dispatch.outstanding) or len(dispatch.taken) == len(bodies))
                if dispatch.outstanding:
                    dispatch.release(order[released % len(order)])
                    released += 1
            expected = [body for body in bodies if not body.endswith(b"nothing")]
            assert [await answer(reader) for _ in expected] == expected
            assert dispatch.taken == bodies

    asyncio.run(run())


async def test_the_number_of_outstanding_responses_is_limited() -> None:
    dispatch = Lateness()
    bodies = [b"late %d" % number for number in range(LATE_ANSWERS_MAX + 5)]
    async with connected(dispatch) as (_, reader, writer):  # type: ignore[arg-type]
        writer.write(b"".join(map(framed, bodies)))
        await turns(lambda: len(dispatch.taken) >= LATE_ANSWERS_MAX)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(dispatch.taken) == LATE_ANSWERS_MAX
        dispatch.release(1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(dispatch.taken) == LATE_ANSWERS_MAX
        dispatch.release(0)
        await turns(lambda: len(dispatch.taken) == LATE_ANSWERS_MAX + 2)
        assert [await answer(reader) for _ in range(2)] == bodies[:2]


async def test_a_response_to_a_closed_connection_is_dropped() -> None:
    dispatch = Lateness()
    async with connected(dispatch) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(framed(b"late 1") + framed(b"late 2"))
        await turns(lambda: len(dispatch.taken) == 2)
        connection.close()
        dispatch.release(0)
        dispatch.release(0)
        connection.answer([framed(b"too late")])
        await asyncio.sleep(0)
        assert connection.is_closed
        assert connection.bytes_sent == 0


async def test_later_requests_of_a_client_that_has_closed_are_not_handled() -> None:
    dispatch = Lateness()
    async with connected(dispatch) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(framed(b"now 1") + framed(b"late 2") + framed(b"now 3"))
        writer.close()
        await turns(lambda: connection.is_closed)
        assert dispatch.taken == [b"now 1"]


async def test_unsent_responses_are_not_counted_once_the_connection_has_closed() -> None:
    dispatch = Lateness()
    async with connected(dispatch) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(framed(b"late 1") + framed(b"late 2") + framed(b"now 3"))
        await turns(lambda: len(dispatch.taken) == 3)
        _, answer = dispatch.outstanding.pop(0)
        answer([bytes(8 * 1024 * 1024)])
        await turns(lambda: not connection.waits_for_client)
        writer.write(struct.pack(">i", -1))
        assert connection.unsent_bytes > 0
        while await reader.read(1024 * 1024):
            pass
        await turns(lambda: connection.is_closed)
        assert (connection.unsent_bytes, connection.has_unsent) == (0, False)


async def test_responses_that_wait_for_an_earlier_one_count_as_unsent_and_stop_the_reading() -> None:
    """These responses are in memory, whatever delays them."""
    dispatch = Lateness()
    async with connected(dispatch) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(b"".join(map(framed, [b"late 1", b"late 2", b"late 3"])))
        await turns(lambda: len(dispatch.taken) == 3)
        for size_bytes in (LATE_BYTES_MAX // 2, LATE_BYTES_MAX):
            _, send = dispatch.outstanding.pop()
            send([bytes(size_bytes)])
        await turns(lambda: connection.unsent_bytes == LATE_BYTES_MAX * 3 // 2)
        assert connection.has_unsent
        await turns(lambda: not connection.waits_for_client)
        writer.write(framed(b"late 4"))
        dispatch.release(0)
        assert await answer(reader) == b"late 1"
        await reader.readexactly(LATE_BYTES_MAX * 3 // 2)
        await turns(lambda: len(dispatch.taken) == 4)
        assert (connection.unsent_bytes, connection.has_unsent) == (0, False)


async def test_a_half_closed_connection_is_noticed_while_its_response_is_pending_and_is_answered() -> None:
    dispatch = Lateness()
    async with connected(dispatch) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(framed(b"mute"))
        await turns(lambda: bool(dispatch.outstanding))
        assert not connection.has_ended()
        writer.write_eof()
        await turns(connection.has_ended)
        assert not connection.is_gone()
        dispatch.release(0)
        assert await answer(reader) == b"mute"
        await turns(lambda: connection.is_closed)
        assert connection.is_gone()


def tcp_pair() -> tuple[socket, socket]:
    with create_server(("127.0.0.1", 0)) as server:
        return create_connection(server.getsockname()), server.accept()[0]


async def test_a_client_that_has_reset_its_connection_is_gone() -> None:
    dispatch = Lateness()
    async with connected(dispatch, pair=tcp_pair()) as (connection, _, writer):  # type: ignore[arg-type]
        writer.write(framed(b"mute"))
        await turns(lambda: bool(dispatch.outstanding))
        writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        await turns(connection.is_gone)
        assert connection.is_closed


async def test_a_half_closed_connection_gets_all_outstanding_responses() -> None:
    """A client whose connection is not read from meanwhile gets them as well."""
    dispatch = Lateness()
    bodies = [b"late 1", b"late 2", b"now 3"]
    async with connected(dispatch) as (connection, reader, writer):  # type: ignore[arg-type]
        writer.write(b"".join(map(framed, bodies)) + framed(b"never whole")[:-1])
        await turns(lambda: len(dispatch.taken) == 3)
        assert connection.begun_bytes > 0
        writer.write_eof()
        await turns(lambda: connection.has_ended() and not connection.waits_for_client)
        assert connection.begun_bytes == 0
        dispatch.release(1)
        dispatch.release(0)
        assert [await answer(reader) for _ in bodies] == bodies
        await turns(lambda: connection.is_closed)
