"""The watches of resources and of the objects that Clusters own; also starts and stops the operator with kopf."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count, repeat
from typing import Any, Final, Protocol

import kopf

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.observed.inventory import needed
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.reconcile.cluster_workers import ClusterWorkers
from barnabas_operator.reconcile.reconcile_parts import MustEnd, RetryingLoop
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.kind import Json, Key, key_of


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


log = logging.getLogger(__name__)

OWNED: Final = (
    "ConfigMap",
    "CronJob",
    "Deployment",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "Pod",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "StatefulSet",
)
"""The kinds that Clusters own. Only objects with the label of a Cluster are watched.

PodMonitors are not watched, because the kind may not exist. A deleted PodMonitor is created again by the next full
reconciliation.
"""
RETRY_S: Final = 0.5
AGAIN_S: Final = 1.0
"""The pause in seconds between the end of a watch request and the next list."""
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"


class OnObject(Protocol):
    """A function that the watch calls for each change."""

    def __call__(self, body: Json, *, is_gone: bool) -> None:
        """Process an object, which was deleted if `is_gone` is true, and otherwise was added or changed."""


class CollectionWatch:
    """The watch of all objects of one kind. It lists the objects again whenever a watch request ends.

    `on_object` processes an object. `on_error` is called with the kind whenever `on_object` raises an exception.
    `on_listed` is called after each list.
    """

    def __init__(
        self,
        api: KubeApi,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str],
        on_object: OnObject,
        on_error: Callable[[str], None],
        on_listed: Callable[[], None],
        clock: LoopClock,
    ) -> None:
        self._api = api
        self._kind = kind
        self._place = kind, namespace, labels
        self._what = f"the watch of {kind}s in {namespace or 'all namespaces'}"
        self._on_object = on_object
        self._on_error = on_error
        self._on_listed = on_listed
        self._clock = clock
        self._version = 0
        self._known: dict[Key, Json] = {}

    async def run(self) -> None:
        """List and watch the objects, until cancelled. Raises MustEnd if etcd was restored from a backup."""
        await RetryingLoop(self._what, self._clock.sleep, self._go_on, self._clock, RETRY_S).run()

    async def _go_on(self) -> float:
        """List the objects, and handle events until the watch request ends; return the seconds until the next list."""
        await self._list()
        with suppress(KubeUnreachable):  # If the API server is down, the next list raises the error.
            async for event in self._api.changes(*self._place, self._version):
                self._take(event["type"], event["object"])
        return AGAIN_S

    async def _list(self) -> None:
        """List all objects; call `on_object` for each object that was added, changed or deleted since the last list."""
        pages = [page async for page in self._api.pages(*self._place)]
        newest = int(pages[-1]["metadata"]["resourceVersion"])
        if newest < self._version:
            raise MustEnd(f"{self._what} saw version {self._version}, but now sees version {newest}: etcd was restored")
        # In lists of built-in kinds, Kubernetes leaves out the fields `kind` and `apiVersion` of the items.
        kind = {"apiVersion": pages[-1].get("apiVersion"), "kind": self._kind}
        listed = {key_of(body): {**kind, **body} for page in pages for body in page["items"]}
        for key, body in list(self._known.items()):
            if key not in listed or _meta(listed[key], "uid") != _meta(body, "uid"):
                self._process(body, is_gone=True)
        for key, body in listed.items():
            if key not in self._known or _meta(self._known[key], "resourceVersion") != _meta(body, "resourceVersion"):
                self._process(body, is_gone=False)
        self._version = newest
        self._on_listed()

    def _take(self, change: str, body: Json) -> None:
        if change == ERROR:
            raise KubeRefused(int(body.get("code", 0)), str(body.get("reason")), str(body.get("message")))
        if change != BOOKMARK:
            self._process(body, is_gone=change == DELETED)
        self._version = int(body["metadata"]["resourceVersion"])

    def _process(self, body: Json, *, is_gone: bool) -> None:
        """Store the object, or remove it if it was deleted, and call `on_object`.

        An exception of `on_object` is logged and reported to `on_error`, so that one object does not stop the watch.
        """
        key = key_of(body)
        self._known.pop(key, None)
        if not is_gone:
            self._known[key] = needed(body)
        try:
            self._on_object(body, is_gone=is_gone)
        except Exception:
            log.exception("%s %s/%s could not be processed", self._kind, *key)
            self._on_error(self._kind)


async def watch_all(
    api: KubeApi,
    namespaces: tuple[str, ...],
    workers: ClusterWorkers,
    on_error: Callable[[str], None],
    clock: LoopClock,
) -> None:
    """Run all watches until cancelled; start the workers of a namespace after all its resources have been listed.

    Raises MustEnd if etcd was restored from a backup.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for namespace in namespaces or (None,):
                for watch in _watches_in(namespace, api, workers, on_error, clock):
                    group.create_task(watch.run())
    except* MustEnd as ended:
        raise MustEnd(str(ended.exceptions[0])) from ended


def _watches_in(
    namespace: str | None, api: KubeApi, workers: ClusterWorkers, on_error: Callable[[str], None], clock: LoopClock
) -> Iterator[CollectionWatch]:
    unlisted = set(KINDS)

    def listed(kind: str) -> None:
        unlisted.discard(kind)
        if not unlisted:
            workers.begin(namespace)

    for kind in KINDS:
        on_object, on_listed = workers.resource_event, partial(listed, kind)
        yield CollectionWatch(api, kind, namespace, {}, on_object, on_error, on_listed, clock)
    for kind in OWNED:
        labels, on_object = {CLUSTER_LABEL: ""}, workers.object_event
        yield CollectionWatch(api, kind, namespace, labels, on_object, on_error, lambda: None, clock)


def _meta(body: Json, field: str) -> object:
    return body["metadata"].get(field)
