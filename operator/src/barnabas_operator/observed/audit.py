"""Whether the watch still reports all changes: it can end unnoticed (kopf's issue 1276)."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.resources.kinds import KINDS

log = logging.getLogger(__name__)

STALE_MAX: Final = 2
Versions = Mapping[str, int]
"""Resource versions by namespace, name and uid."""


class Audit:
    """Compares the listed resources with what the watch reported. Stale twice in a row means that the watch is dead.

    A watch that restarts, as when a definition changes, lists what is there and does not report what was deleted
    meanwhile: the audit passes that to `tell_gone`.
    """

    def __init__(
        self,
        inventory: Inventory,
        api: KubeApi,
        namespaces: tuple[str, ...],
        tell_gone: Callable[[Mapping[str, Any]], None],
        every_s: float,
        clock: LoopClock,
    ) -> None:
        self._inventory = inventory
        self._tell_gone = tell_gone
        self._api = api
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._every_s = every_s
        self._clock = clock
        self._stale = 0
        self._listed: Versions = {}
        self._absent: frozenset[str] = frozenset()
        """What was known before the last listing began, and was not in it."""

    @property
    def why_dead(self) -> str | None:
        """For the kubelet, which restarts the operator."""
        return "the watch misses changes" if self._stale >= STALE_MAX else None

    async def run(self) -> None:
        """Until it is cancelled. An API server that is away is nobody's death."""
        while True:
            await self._clock.sleep(self._every_s)
            try:
                await self._look()
            except Exception as error:  # Whatever it is: nobody else looks whether the watch lives.
                is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
                log.log(logging.ERROR if is_bug else logging.DEBUG, "the audit waits: %s", error, exc_info=is_bug)

    async def _look(self) -> None:
        """What is created while it lists is in no listing, and may be known by its end: only what was known counts."""
        known_before = versions(self._inventory.bodies())
        listed = await self._list()
        known = versions(self._inventory.bodies())
        absent = frozenset(known_before.keys() - listed.keys())
        self._judge([*missed_between(self._listed, listed, known), *turned_back(known_before, listed)])
        self._forget(self._absent & absent & known.keys())
        self._listed, self._absent = listed, absent

    def _judge(self, missed: list[str]) -> None:
        self._stale = self._stale + 1 if missed else 0
        if missed:
            log.warning("the watch missed changes of %d resources, such as %s", len(missed), missed[0])

    def _forget(self, gone: frozenset[str]) -> None:
        """What two listings in a row lack, and the watch has not reported as deleted."""
        if not gone:
            return
        for body in [each for each in self._inventory.bodies() if identity(each) in gone]:
            log.info("%s was deleted while the watch restarted", identity(body))
            self._tell_gone(body)

    async def _list(self) -> Versions:
        """Page by page, for there may be thousands: what is kept of each is its version."""
        listed: dict[str, int] = {}
        for kind in KINDS:
            for place in self._namespaces:
                async for page in self._api.pages(kind, place):
                    listed |= versions(page)
        return listed


def missed_between(before: Versions, now: Versions, known: Versions) -> list[str]:
    """What was so at the listing before, and is not known yet: news that are underway are nobody's fault."""
    return [uid for uid, version in before.items() if uid in now and known.get(uid, 0) < version]


def turned_back(known: Versions, listed: Versions) -> list[str]:
    """What a later listing has in an older version: etcd was put back, and newer news would look older for long."""
    return [uid for uid, version in known.items() if listed.get(uid, version) < version]


def identity(body: Mapping[str, Any]) -> str:
    """Another one of the same name is another one."""
    meta = body["metadata"]
    return f"{meta['namespace']}/{meta['name']} ({meta['uid']})"


def versions(bodies: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The `resourceVersion` of each body, by its identity."""
    return {identity(body): int(body["metadata"]["resourceVersion"]) for body in bodies}
