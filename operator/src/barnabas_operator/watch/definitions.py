"""Definitions (CRDs) that are applied, or deleted and applied again, while the operator runs."""

import logging
from typing import Final

import kopf
from kopf._cogs.structs.references import Insights

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import GROUP, VERSION

log = logging.getLogger(__name__)

LOOK_S: Final = 2.0
PLURALS: Final = frozenset(kind.plural for kind in KINDS.values())


class Definitions:
    """Has kopf watch each of our kinds that the API server serves and that kopf does not watch.

    kopf looks once for each change of a definition which kinds are served. The API server reports the change a moment
    before it serves the kind: kopf finds nothing then, and does not look again (docs/decisions/operator-libraries.md).
    """

    def __init__(self, clock: LoopClock) -> None:
        self._clock = clock
        self.insights = Insights()
        """For `kopf.operator`: which kinds it watches."""

    async def run(self, api: KubeApi) -> None:
        """Looks every LOOK_S until it is cancelled."""
        await self.insights.ready_resources.wait()  # Before, kopf has not looked itself.
        while True:
            try:
                await self._look(api)
            except Exception as error:  # Whatever it is: nobody else looks.
                is_bug = not isinstance(error, KubeUnreachable | KubeRefused)
                level = logging.ERROR if is_bug else logging.DEBUG
                log.log(level, "which kinds are served is not known: %s", error, exc_info=is_bug)
            await self._clock.sleep(LOOK_S)

    async def _look(self, api: KubeApi) -> None:
        unwatched = await _served(api) - self.insights.watched_resources
        if unwatched:
            log.info("kinds that are served and were not watched: %s", ", ".join(sorted(map(str, unwatched))))
            async with self.insights.revised:
                self.insights.watched_resources.update(unwatched)
                self.insights.revised.notify_all()


async def _served(api: KubeApi) -> set[kopf.Resource]:
    """Our kinds as the API server lists them; none where it has no definition of ours."""
    try:
        found = await api.request("GET", f"/apis/{GROUP}/{VERSION}")
    except KubeRefused as error:
        if error.status == NOT_FOUND:
            return set()
        raise
    return {
        kopf.Resource(
            GROUP, VERSION, each["name"], each["kind"], namespaced=each["namespaced"], verbs=frozenset(each["verbs"])
        )
        for each in found["resources"]
        if each["name"] in PLURALS and "create" in each["verbs"]  # Not while the definition is being deleted.
    }
