"""Resources of terminating namespaces: kopf does not watch one that is terminating when the operator starts."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.resources.kinds import KINDS

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0


class TerminatingNamespaces:
    """Tells what is still there in watched namespaces that end: its finalizers would hold them for ever."""

    def __init__(
        self,
        api: KubeApi,
        namespaces: tuple[str, ...],
        tell: Callable[[Mapping[str, Any]], None],
        clock: LoopClock,
    ) -> None:
        self._api = api
        self._namespaces = namespaces
        self._tell = tell
        self._clock = clock

    async def run(self) -> None:
        """Looks at the namespaces every few seconds, until it is cancelled."""
        while True:
            for namespace in self._namespaces:
                try:
                    await self._look(namespace)
                except Exception as error:  # Whatever it is: nobody else looks.
                    is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
                    level = logging.ERROR if is_bug else logging.DEBUG
                    log.log(level, "the namespace %s: %s", namespace, error, exc_info=is_bug)
            await self._clock.sleep(LOOK_S)

    async def _look(self, namespace: str) -> None:
        found = await self._api.get("Namespace", None, namespace)
        if found is None or "deletionTimestamp" not in found["metadata"]:
            return
        for kind in KINDS:
            for body in await self._api.listing(kind, namespace, {}):
                self._tell(body)
