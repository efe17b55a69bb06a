"""Whether the watch still tells all: a watch can end without anybody noticing (kopf's issue 1276)."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas_operator.handlers.inventory import Inventory
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable

log = logging.getLogger(__name__)

STALE_MAX: Final = 2
KINDS: Final = ("Cluster", "Topic")
Listed = dict[str, int]
"""Resource versions by namespace, name and uid."""


class Audit:
    """Compares, now and then, what is there with what the watch told. Stale twice in a row means that it is dead.

    A watch that began anew, as when a definition changes, lists what is there, and nobody tells what went meanwhile:
    that is told to `tell_gone`.
    """

    def __init__(
        self,
        inventory: Inventory,
        api: KubeApi,
        namespaces: tuple[str, ...],
        tell_gone: Callable[[Mapping[str, Any]], None],
        every_s: float,
    ) -> None:
        self._inventory = inventory
        self._tell_gone = tell_gone
        self._api = api
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._every_s = every_s
        self._stale = 0

    @property
    def why_dead(self) -> str | None:
        """For the kubelet, which starts the operator anew."""
        return "the watch tells no changes any more" if self._stale >= STALE_MAX else None

    async def run(self) -> None:
        """Until it is cancelled. An API server that is away is nobody's death."""
        before: Listed | None = None
        while True:
            await asyncio.sleep(self._every_s)
            try:
                there = await self._there()
            except Exception as error:  # Whatever it is: nobody else looks whether the watch lives.
                is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
                log.log(logging.ERROR if is_bug else logging.DEBUG, "the audit waits: %s", error, exc_info=is_bug)
                continue
            if before is not None:
                self._compare(before, there)
            before = there

    def _compare(self, before: Listed, there: Listed) -> None:
        bodies = [*self._inventory.clusters.values(), *self._inventory.topics.values()]
        known = _versions(bodies)
        missed = missed_between(before, there, known)
        self._stale = self._stale + 1 if missed else 0
        if missed:
            log.warning("the watch has not told of %d resources, such as %s", len(missed), missed[0])
        gone = set(gone_between(before, there, known))
        for identity, body in zip(known, bodies, strict=True):
            if identity in gone:
                log.info("%s went while the watch began anew", identity)
                self._tell_gone(body)

    async def _there(self) -> Listed:
        bodies: list[Mapping[str, Any]] = []
        for kind in KINDS:
            for place in self._namespaces:
                bodies += await self._api.listing(kind, place, {})
        return _versions(bodies)


def missed_between(before: Listed, now: Listed, known: Listed) -> list[str]:
    """What was so at the listing before, and is not known yet: news that are underway are nobody's fault."""
    return [uid for uid, version in before.items() if uid in now and known.get(uid, 0) < version]


def gone_between(before: Listed, now: Listed, known: Listed) -> list[str]:
    """What was gone at the listing before, and is not known to be."""
    return [uid for uid in known if uid not in before and uid not in now]


def _versions(bodies: Iterable[Mapping[str, Any]]) -> Listed:
    metas = (body["metadata"] for body in bodies)
    return {f"{meta['namespace']}/{meta['name']} ({meta['uid']})": int(meta["resourceVersion"]) for meta in metas}
