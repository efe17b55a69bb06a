"""No turn of a broker's loop has more than a small share of the work of a large request, whatever its API.

The shares are those of function calls, with a clock on which a turn has room for a few steps only, so they are the same
on every machine.
"""

import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from barnabas_broker.app.broker import Broker
from barnabas_broker.app.loop_turns import MeasuringSelector
from barnabas_broker.app.main import share_out
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.wire.framing import API_SPECS, PRODUCE
from barnabas_core.config.broker_config import parse_broker_config
from harness.manual_clock import ManualClock
from harness.server_process import free_port
from harness.soak import size
from turns.largest import Largest, largest_requests

ELEMENTS: Final = 2_100
"""So many that each request is above LARGE_REQUEST_BYTES, and that 100 of them are a small share."""
FEW: Final = ELEMENTS
"""The calls that each turn may have: arrays of numbers take no call for each element."""
MOST: Final = 0.15
"""The share of the calls of a request that no turn reaches; a single turn would have all of them."""
READ_AT_ONCE: Final = frozenset({API_SPECS[PRODUCE].name})
"""The API whose handler parses the bytes in one turn."""


class SlowClock(ManualClock):
    """A clock on which each reading takes a millisecond."""

    def monotonic_s(self) -> float:
        self.passed_ms += 1
        return super().monotonic_s()


class CallsOfTurns:
    """Counts the calls of Python functions in each turn of the loop."""

    def __init__(self) -> None:
        self._calls = self._all = self._most = 0

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._calls += 1
            if frame.f_code.co_name == "_run_once":
                self._end()

    def _end(self) -> None:
        self._all += self._calls
        self._most = max(self._most, self._calls)
        self._calls = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        sys.setprofile(self._called)
        try:
            yield
        finally:
            sys.setprofile(None)
            self._end()

    @property
    def largest_share(self) -> float:
        """The share of the turn that has the most calls; 0 if it has few."""
        return self._most / self._all if self._most > FEW else 0.0


async def share_of(port: int, largest: Largest) -> float:
    """Send a request twice, because the first one imports its handler; return the largest share of the second one."""
    calls = CallsOfTurns()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 30)
    for is_counted in (False, True):
        writer.write(largest.frame)
        with calls.counted() if is_counted else _nothing():
            length = int.from_bytes(await reader.readexactly(4))
            await reader.readexactly(length)
    writer.close()
    return calls.largest_share


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def longest_of_each(requests: Sequence[Largest]) -> list[Largest]:
    """Return the request with the most bytes of each API."""
    by_length = sorted(requests, key=lambda each: len(each.frame))
    return list({each.api: each for each in by_length}.values())


async def shares(folder: Path, selector: MeasuringSelector) -> dict[str, float]:
    port = free_port()
    config = parse_broker_config(
        {
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / "logs"),
            "metadata.store": f"sqlite:///{folder / 'metadata.db'}",
            "http.listener": "",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
        }
    )
    broker = Broker(config, share_out(1000).segments, asyncio.get_running_loop(), selector)
    await broker.start()
    try:
        assert broker._node is not None
        environment = broker._node.handler_environment
        environment.answers = environment.metadata_answers = LargeResponses(SlowClock(), environment.timers)
        environment.fetches = environment.broker_fetches = environment.answers
        requests = [each for each in largest_requests(frozenset(), ELEMENTS) if each.api not in READ_AT_ONCE]
        return {
            f"{each.api} {each.path}": await share_of(port, each) for each in size(longest_of_each(requests), requests)
        }
    finally:
        await broker.stop()


@pytest.mark.slow
@pytest.mark.soak
def test_no_turn_has_a_large_share_of_a_request_of_any_api(tmp_path: Path) -> None:
    selector = MeasuringSelector()
    loop = asyncio.SelectorEventLoop(selector)
    try:
        found = loop.run_until_complete(shares(tmp_path, selector))
    finally:
        loop.close()
    assert {name: round(share, 2) for name, share in found.items() if share >= MOST} == {}
