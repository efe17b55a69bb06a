"""Registers the operator with kopf, which watches for it, and starts and stops it."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any, Final

import kopf

from barnabas_core.clock import LoopClock
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.resources.kinds import KINDS
from barnabas_operator.resources.object_meta import GROUP, VERSION
from barnabas_operator.watch.logins import Logins

log = logging.getLogger(__name__)

SERVER_S: Final = 300
ANSWER_S: Final = 310
CONNECT_S: Final = 10
IDLE_S: Final = 0.5
CHUNK: Final = 500
GONE: Final = "DELETED"


class Backoffs(Iterable[float]):
    """Seconds between the tries of a request: the first ones, then the last for ever. Each request starts again.

    kopf ends a watch for good when a request has no tries left, and runs on without it.
    """

    def __init__(self, first: Iterable[float], last: float) -> None:
        self._first = tuple(first)
        self._last = last

    def __iter__(self) -> Iterator[float]:
        return chain(self._first, repeat(self._last))


BACKOFFS: Final = Backoffs((1, 1, 2, 3, 5), 10)
ERROR_DELAYS_S: Final = (1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 60)

OBJECTS: Final = (
    ("", "v1", "configmaps"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "pods"),
    ("", "v1", "serviceaccounts"),
    ("", "v1", "services"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("batch", "v1", "cronjobs"),
    ("networking.k8s.io", "v1", "networkpolicies"),
    ("policy", "v1", "poddisruptionbudgets"),
    ("rbac.authorization.k8s.io", "v1", "rolebindings"),
)
"""What Clusters own. The API server sends those alone that carry a Cluster's label.

PodMonitors are not here: many API servers have no such kind, and no client needs one. A deleted one comes back with
the next full reconciliation.
"""

Event = Mapping[str, Any]
Starter = Callable[[], Awaitable[ClusterWorkers]]
OnError = Callable[[str], None]
"""Hears the kind of an object that could not be processed."""


def make_registry(
    start: Starter, stop: Callable[[], Awaitable[None]], on_error: OnError, clock: LoopClock
) -> kopf.OperatorRegistry:
    """The table of what is called when. Events only: all state is in the resources, and nothing is written for kopf."""
    registry = kopf.OperatorRegistry()
    workers: list[ClusterWorkers] = []

    @kopf.on.startup(registry=registry)
    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        _configure(settings)
        workers.append(await start())

    kopf.on.login(registry=registry)(Logins(clock).next)

    @kopf.on.cleanup(registry=registry)
    async def cleanup(**_: Any) -> None:
        await stop()

    async def resource(event: Event, **_: Any) -> None:
        with traced(event, on_error):
            workers[0].resource_event(event["object"], is_gone=event["type"] == GONE)

    async def owned(event: Event, **_: Any) -> None:
        with traced(event, on_error):
            workers[0].object_event(event["object"], is_gone=event["type"] == GONE)

    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)(resource)
    for place in OBJECTS:
        kopf.on.event(*place, registry=registry)(owned)
    return registry


@contextmanager
def traced(event: Event, on_error: OnError) -> Iterator[None]:
    """Logs and counts what goes wrong with one event: kopf ignores it, and nobody would know."""
    try:
        yield
    except Exception:
        body = event["object"]
        meta, kind = body["metadata"], body.get("kind", "object")
        log.exception("%s %s/%s could not be processed", kind, meta.get("namespace"), meta.get("name"))
        on_error(kind)


def _configure(settings: kopf.OperatorSettings) -> None:
    """A watch that hangs restarts after minutes, a refused one is retried for ever; kopf writes nothing.

    An object's worker only takes a note, so there may be thousands at once: with a limit, objects would wait for those
    before them to have had nothing to do for `idle_timeout`.
    """
    settings.watching.server_timeout = SERVER_S
    settings.watching.client_timeout = ANSWER_S
    settings.watching.connect_timeout = CONNECT_S
    settings.watching.chunk_size = CHUNK
    for kind in OBJECTS:
        settings.watching.label_selectors[kind] = CLUSTER_LABEL
    settings.networking.error_backoffs = BACKOFFS
    settings.queueing.error_delays = ERROR_DELAYS_S
    settings.queueing.worker_limit = None
    settings.queueing.idle_timeout = IDLE_S
    settings.posting.enabled = False
    settings.peering.standalone = True
