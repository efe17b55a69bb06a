"""Run the operator with kopf, which is used only to log in, and to start and stop the operator."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, count, repeat
from typing import Any, Final

import kopf

from barnabas_core.clock import LoopClock


class Backoffs(Iterable[float]):
    """The pauses before the retries of a request, in seconds: the pauses in `first`, and then `last` for ever."""

    def __init__(self, first: Iterable[float], last: float) -> None:
        self._first = tuple(first)
        self._last = last

    def __iter__(self) -> Iterator[float]:
        return chain(self._first, repeat(self._last))


PAUSE_S: Final = 1.0
BACKOFFS: Final = Backoffs((1, 1, 2, 3, 5), 10)


class Logins:
    """The source of credentials for kopf.

    An API server that is starting may refuse valid tokens, and kopf never uses refused credentials again. So each call
    of `next` returns the credentials with a different priority, which makes them unequal to all earlier ones.
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self._numbers = count()

    async def next(self, **given: Any) -> kopf.ConnectionInfo | None:
        """Return the credentials of KUBECONFIG if set, or else of the pod's ServiceAccount; None if there are none.

        Each call after the first waits for PAUSE_S. kopf's default login is not used, because it prefers ~/.kube/config
        to the ServiceAccount.
        """
        number = next(self._numbers)
        if number:
            await self._clock.sleep(PAUSE_S)
        log_in = kopf.login_with_kubeconfig if os.environ.get("KUBECONFIG") else kopf.login_with_service_account
        found = log_in(**given)
        return replace(found, priority=number) if found is not None else None


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
