"""Requests to another broker, and responses that come after the caller has given up."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from barnabas_broker.replication.other_brokers import RequestLink


class HeldLink:
    """A link whose answers come when the test says so."""

    def __init__(self) -> None:
        self.answer: Callable[[memoryview], None] = lambda _: None

    def open(self, _: int, __: Callable[[str], None]) -> "HeldLink":
        return self

    def send(self, _: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        self.answer = on_response

    def close(self) -> None:
        """Do nothing."""


async def test_a_response_in_the_same_turn_as_the_cancellation_is_ignored() -> None:
    link = HeldLink()
    request_link = RequestLink(link, 2)
    asking = asyncio.create_task(request_link.ask(b"question"))
    await asyncio.sleep(0)
    asking.cancel()
    link.answer(memoryview(b"too late"))
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_closing_the_connection_ends_a_request_and_reports_nothing_if_its_caller_is_gone() -> None:
    unhandled: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    request_link = RequestLink(HeldLink(), 2)
    asking = asyncio.create_task(request_link.ask(b"question"))
    await asyncio.sleep(0)
    request_link.close()
    with pytest.raises(ConnectionError, match="the connection was closed"):
        await asking
    gone = RequestLink(HeldLink(), 2)
    caller = gone.ask(b"question")
    caller.send(None)
    gone.close()
    caller.close()
    del gone, caller
    gc.collect()
    assert not unhandled


async def test_a_response_in_time_is_returned_to_the_caller() -> None:
    link = HeldLink()
    asking = asyncio.create_task(RequestLink(link, 2).ask(b"question"))
    await asyncio.sleep(0)
    link.answer(memoryview(b"in time"))
    assert bytes(await asking) == b"in time"
