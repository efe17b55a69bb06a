"""Whether a Cluster is still the one that is known, once an object of it was deleted.

Where etcd was put back, another one may have its name, which looks older. Kubernetes deletes what is made for the one
that is known, again and again, and the watch tells nothing of it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.reconcile.reconcile_parts import retry_pause_s
from barnabas_operator.resources.cluster_kind import CLUSTER
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_key import Key

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0


class DoubtedClusters:
    """`tell_gone` hears of a Cluster that is not there any more, `tell` of the one that is."""

    def __init__(
        self,
        api: KubeApi,
        inventory: Inventory,
        clock: LoopClock,
        tell: Callable[[Json], None],
        tell_gone: Callable[[Json], None],
    ) -> None:
        self._api = api
        self._inventory = inventory
        self._clock = clock
        self._tell = tell
        self._tell_gone = tell_gone
        self._doubted: set[Key] = set()
        self._has_doubts = asyncio.Event()

    def doubt(self, key: Key) -> None:
        """An object of this Cluster was deleted."""
        self._doubted.add(key)
        self._has_doubts.set()

    async def run(self) -> None:
        """Until it is cancelled. Many objects go at once, so it looks once for all that went in a second.

        It asks ever more rarely where the API server does not answer, or refuses.
        """
        failures = 0
        while True:
            await self._has_doubts.wait()
            await self._clock.sleep(retry_pause_s(PAUSE_S, failures))
            self._has_doubts.clear()
            doubted, self._doubted = sorted(self._doubted), set()
            all_told = [await self._is_told(key) for key in doubted]
            failures = 0 if all(all_told) else failures + 1

    async def _is_told(self, key: Key) -> bool:
        """Whether it is known by now; where it is not, the Cluster stays in doubt."""
        try:
            await self._look(key)
        except Exception as error:  # Nobody else looks.
            is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
            log.warning("%s/%s: is it still that Cluster? Trying again: %s", *key, error, exc_info=is_bug)
            self.doubt(key)
            return False
        return True

    async def _look(self, key: Key) -> None:
        """What comes meanwhile by the watch is newer than the answer.

        That there is none proves nothing: an API server that starts may not serve Clusters yet. The audit looks twice.
        """
        known = self._inventory.clusters.get(key)
        if known is None:
            return
        found = await self._api.get(CLUSTER.name, *key)
        uid = known["metadata"]["uid"]
        now = self._inventory.clusters.get(key)
        if found is None or found["metadata"]["uid"] == uid or now is None or now["metadata"]["uid"] != uid:
            return
        log.warning("%s/%s is another Cluster by now, with the uid %s", *key, found["metadata"]["uid"])
        self._tell_gone(now)  # Of `known` there may be a newer version by now.
        self._tell(found)
