"""Run the operator with kopf, which is used only to log in, and to start and stop the operator."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any, Final

import kopf

from barnabas_core.clock import LoopClock
from barnabas_operator.watch.logins import Logins


class Backoffs(Iterable[float]):
    """The pauses before the retries of a request, in seconds: the pauses in `first`, and then `last` for ever."""

    def __init__(self, first: Iterable[float], last: float) -> None:
        self._first = tuple(first)
        self._last = last

    def __iter__(self) -> Iterator[float]:
        return chain(self._first, repeat(self._last))


BACKOFFS: Final = Backoffs((1, 1, 2, 3, 5), 10)


async def run_by_kopf(
    start: Callable[[], Awaitable[None]],
    stop: Callable[[], Awaitable[None]],
    ending: asyncio.Event,
    clock: LoopClock,
) -> None:
    """Run kopf until a signal, or until `ending` is set; kopf calls `start` at the beginning and `stop` at the end.

    The watches of kopf are switched off.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.scanning.disabled = True
        settings.networking.error_backoffs = BACKOFFS
        settings.posting.enabled = False
        settings.peering.standalone = True
        await start()

    kopf.on.login(registry=registry)(Logins(clock).next)

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await stop()

    await kopf.operator(registry=registry, standalone=True, clusterwide=True, stop_flag=ending)
