"""The clients, settings, clock and functions that the workers of Clusters share, and the writer of statuses."""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas_core.clock import Clock, LoopClock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.leader_election import ALONE, NO_OUTAGES, ApiOutages, Leadership
from barnabas_operator.manifests.kube_object import NOBODY_ELSE, Neighbours
from barnabas_operator.planning.brokers.broker_security import addresses_between_brokers, is_reached_by_tls
from barnabas_operator.planning.brokers.pods import is_owned
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INVALID_SPEC, KUBERNETES_ERROR, Refusal, time_text, with_problem
from barnabas_operator.planning.object_names import operator_certificate_name
from barnabas_operator.planning.rules_of_kinds import may_go, status_events, with_waiting
from barnabas_operator.planning.topics.reconcile_plan import MovePlan
from barnabas_operator.planning.users.user_secret import NewPassword
from barnabas_operator.resources.cluster import Cluster, ClusterStatus
from barnabas_operator.resources.kind import (
    MESSAGE_LENGTH_MAX,
    Json,
    Key,
    Resource,
    Status,
    merge_conditions,
    shortened,
)
from barnabas_operator.resources.schema_check import InvalidResource, ResourceT, readable_part, resource_of, status_json

T = TypeVar("T")


async def all_ended(works: Iterable[Awaitable[T]]) -> list[T]:
    """Run the awaitables concurrently. When all have ended, return their results, or raise the first failure."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]


async def in_turns(work: Callable[[T], Awaitable[None]], items: Iterable[T], at_once_max: int) -> None:
    """Process at most `at_once_max` items at a time. Raise the first failure after all items have been processed."""
    turns = asyncio.Semaphore(at_once_max)

    async def one(item: T) -> None:
        async with turns:
            await work(item)

    await all_ended(map(one, items))


log = logging.getLogger(__name__)

FINALIZER: Final = "barnabas.dev/deletion-policy"
AT_ONCE_MAX: Final = 16


class EventWriter:
    """The writer of the Events that `kubectl describe` shows."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api

    async def send(self, event: Mapping[str, Any]) -> None:
        """Send one Event; only log the error if the API server refuses the Event or does not answer."""
        about = event["involvedObject"]
        try:
            await self._api.create(event)
        except (KubeRefused, KubeUnreachable) as error:
            log.warning(
                "%s/%s: the Event %s could not be sent: %s", about["namespace"], about["name"], event["reason"], error
            )


class _Written(NamedTuple):
    uid: str
    version: int
    status: Status


class StatusWriter:
    """The writer of statuses and finalizers, with at most AT_ONCE_MAX requests at a time."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._events = EventWriter(api)
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._written: dict[tuple[str, str, str], _Written] = {}
        """The statuses that the watch has not reported yet, by kind, namespace and name."""
        self._refused: KubeRefused | None = None
        self.wrote_at = 0.0
        """The monotonic time at which the API server last answered a write without an error."""

    def begin(self) -> None:
        """Forget earlier refusals, because a reconciliation begins."""
        self._refused = None

    def check(self) -> None:
        """Raise KubeRefused if a write since `begin` was refused for a reason that may be temporary."""
        if self._refused is not None:
            raise self._refused

    def forget(self) -> None:
        """Forget the written statuses, so that the statuses of deleted objects do not fill the memory."""
        self._written.clear()

    async def write(self, changed: Iterable[tuple[ResourceT, Json]]) -> list[ResourceT]:
        """Write changed statuses, and send Events about the changes; return the resources that no longer exist."""
        resources = list(changed)
        there = await all_ended(self._write(resource, body) for resource, body in resources)
        return [resource for (resource, _), is_there in zip(resources, there, strict=True) if not is_there]

    async def _write(self, resource: Resource, body: Json) -> bool:
        """Write the status if it has changed; return False if the object does not exist."""
        known = self.newer_than(body)
        before = status_json(replace(resource, status=known)) if known is not None else body.get("status", {})
        new = _bounded(resource.status, known)
        resource = replace(resource, status=new)
        status = status_json(resource)
        if status == before:
            return True
        whole = {name: _patched(before.get(name), status.get(name)) for name in _fields(type(new))}
        meta = body["metadata"]
        async with self._turns:
            try:
                written = await self._api.patch(
                    resource.kind, meta["namespace"], meta["name"], {"status": whole}, subresource="status"
                )
            except KubeRefused as error:
                self._note(error)
                log.warning("%s/%s: the API server refused the status: %s", meta["namespace"], meta["name"], error)
                return True
            self.wrote_at = self._clock.monotonic_s()
            if written is None:
                return False
            about, version = written["metadata"]["uid"], int(written["metadata"]["resourceVersion"])
            self._written[_key(body)] = _Written(about, version, new)
            for event in status_events(resource, before, time_text(self._clock.now_ms())):
                await self._events.send(event)
        return True

    def newer_than(self, body: Json) -> Status | None:
        """Return the written status that the watch has not reported yet, if there is one."""
        ours, meta = self._written.get(_key(body)), body["metadata"]
        if ours is None:
            return None
        if ours.uid == meta["uid"] and int(meta["resourceVersion"]) < ours.version:
            return ours.status
        del self._written[_key(body)]
        return None

    def newest(self, resource: ResourceT, body: Json) -> ResourceT:
        """Return the resource with the status that was written last, even if the watch has not reported it yet."""
        written = self.newer_than(body)
        return replace(resource, status=written) if written is not None else resource

    async def set_finalizer(self, body: Json, *, wanted: bool) -> bool:
        """Set or remove the operator's finalizer; return True if the object now is as wanted.

        Return False, without a write, if the object has changed since it was read, or if the finalizer would be set on
        an object that is being deleted or was deleted. Raises KubeRefused and KubeUnreachable.
        """
        meta = body["metadata"]
        if has_finalizer_as(body, wanted=wanted):
            return True
        finalizers: list[str] = meta.get("finalizers", [])
        if wanted and "deletionTimestamp" in meta:
            return False
        others = [each for each in finalizers if each != FINALIZER]
        return await self._finalizers(body, [*others, FINALIZER] if wanted else others)

    async def with_finalizers(
        self, resources: Iterable[ResourceT], bodies: Mapping[str, Json], needs_finalizer: Callable[[ResourceT], bool]
    ) -> list[ResourceT]:
        """Set or remove the finalizers of `resources`; return the resources whose finalizers are now as needed.

        If the API server refuses a change, the refusal is written into the status of the resource.
        """
        every = list(resources)
        found = await all_ended(
            self._has_finalizer(each, bodies[each.metadata.name], wanted=needs_finalizer(each)) for each in every
        )
        return [each for each, has_it in zip(every, found, strict=True) if has_it]

    async def _has_finalizer(self, resource: Resource, body: Json, *, wanted: bool) -> bool:
        try:
            return await self.set_finalizer(body, wanted=wanted)
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, f"the finalizer {FINALIZER} could not be changed: {error.message}")
            await self.write([(with_problem(resource, why, time_text(self._clock.now_ms())), body)])
            return False

    async def release(self, body: Json) -> bool:
        """Remove the finalizer; return True if the object no longer has it. Raises KubeUnreachable."""
        try:
            return await self.set_finalizer(body, wanted=False)
        except KubeRefused as error:
            meta = body["metadata"]
            log.warning("%s/%s: the finalizer could not be removed: %s", meta["namespace"], meta["name"], error)
            return False

    async def take_annotation(self, body: Json, name: str) -> None:
        """Remove the annotation of a request that was carried out, unless its value has changed meanwhile.

        Raises KubeRefused and KubeUnreachable.
        """
        kind, meta = body["kind"], body["metadata"]
        found = await self._api.get(kind, meta["namespace"], meta["name"])
        if found is None or _annotation(found, name) != _annotation(body, name):
            return
        change = {"resourceVersion": found["metadata"]["resourceVersion"], "annotations": {name: None}}
        try:
            await self._api.patch(kind, meta["namespace"], meta["name"], {"metadata": change})
        except KubeRefused as error:
            if error.status != CONFLICT:  # After a conflict the next reconciliation tries again.
                raise

    async def write_insecure(self, body: Json) -> Json:
        """Write `spec.insecure: true` into a Cluster; return the object. Raises KubeRefused and KubeUnreachable."""
        kind, meta = body["kind"], body["metadata"]
        return await self._api.patch(kind, meta["namespace"], meta["name"], {"spec": {"insecure": True}}) or body

    def _note(self, error: KubeRefused) -> None:
        if not error.is_about_the_object:
            self._refused = error

    async def _finalizers(self, body: Json, finalizers: list[str]) -> bool:
        """Write the finalizers; return False, without a write, if the object was deleted or has changed meanwhile.

        If it has changed, a write could remove a finalizer that another client has just added.
        """
        meta = body["metadata"]
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": meta["resourceVersion"]}}
        try:
            async with self._turns:
                written = await self._api.patch(body["kind"], meta["namespace"], meta["name"], change)
                self.wrote_at = self._clock.monotonic_s()
        except KubeRefused as error:
            if error.status != CONFLICT:
                self._note(error)
                raise
            return False
        return written is not None or FINALIZER not in finalizers


def has_finalizer_as(body: Json, *, wanted: bool) -> bool:
    """True if the object has the finalizer and `wanted` is true, or lacks the finalizer and `wanted` is false."""
    return (FINALIZER in body["metadata"].get("finalizers", ())) == wanted


def _annotation(body: Json, name: str) -> str | None:
    text: str | None = (body["metadata"].get("annotations") or {}).get(name)
    return text


@cache
def _fields(kind: type[Status]) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


def _patched(before: Any, now: Any) -> Any:
    """Return the JSON merge patch from `before` to `now`, in which null removes a field."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return now
    return {name: _patched(before.get(name), now.get(name)) for name in {**before, **now}}


def _bounded(status: Status | None, known: Status | None) -> Status:
    """Return the status with messages short enough for the API server.

    A condition whose value is unchanged since the earlier status `known` keeps its lastTransitionTime.
    """
    assert status is not None, "the status of a resource must be set before the status is written"
    short = (replace(each, message=shortened(each.message, MESSAGE_LENGTH_MAX)) for each in status.conditions)
    status = replace(status, conditions=merge_conditions(known.conditions if known is not None else (), short))
    if not isinstance(status, ClusterStatus) or status.rolling is None:
        return status
    message = shortened(status.rolling.message, MESSAGE_LENGTH_MAX)
    return replace(status, rolling=replace(status.rolling, message=message))


def _key(body: Json) -> tuple[str, str, str]:
    meta = body["metadata"]
    return body["kind"], meta["namespace"], meta["name"]


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The operator's settings. Without `namespaces` the operator watches all namespaces.

    `bootstrap` replaces the bootstrap address of every Cluster. A Cluster is reconciled `batch_s` after a change, every
    `busy_s` while a step is pending, and every `drift_s` otherwise. Consumer groups are reconciled every
    `group_poll_s`, and active maintenance runs every `run_poll_s`.

    Of all operators with the same `lease` (`NAMESPACE/NAME`), the leader acts; each has a different `identity`. Without
    a lease, the operator always acts.
    """

    broker_image: str
    namespaces: tuple[str, ...] = ()
    bootstrap: str = ""
    batch_s: float = 0.1
    busy_s: float = 0.5
    drift_s: float = 60.0
    group_poll_s: float = 15.0
    run_poll_s: float = 5.0
    lease: str = ""
    identity: str = ""
    neighbours: Neighbours = NOBODY_ELSE
    operator_image: str = "barnabas-operator:dev"
    """The operator's own image, which lag exporters and the pods of maintenance CronJobs also use."""
    jobs_image: str = "barnabas-jobs:dev"
    """The image of drivers and executors of maintenance jobs."""
    pull_secrets: tuple[str, ...] = ()
    """The image pull secrets of maintenance pods, which must exist in the namespace of these pods."""

    def bootstrap_of(self, cluster: Cluster) -> str:
        """Return the bootstrap addresses of a Cluster: the setting `bootstrap`, or those between its brokers."""
        return self.bootstrap or addresses_between_brokers(cluster)


Connect = Callable[[str, float, TimedWrite, Credentials], ClusterAdmin]
"""A function that connects to brokers, and blocks until it is connected.

The first argument is the brokers' addresses, `host:port[,host:port]`. The other arguments are the seconds for which
topic configs are cached, a function that returns a context manager for each write, and the credentials. Raises
ClusterUnreachable if no broker answers.
"""


class Identity(NamedTuple):
    """A client certificate with its key, and the CA certificates for checking the brokers' certificates; all PEM."""

    authorities: str
    certificate: str
    key: str


Prove = Callable[[Identity], Credentials]
"""A function that makes credentials for connections to brokers from a client certificate and its key.

Raises ValueError if the certificate or the key is invalid.
"""


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """The clients, settings, clock and functions that a worker uses; `leadership` says whether the operator leads."""

    api: KubeApi
    settings: OperatorSettings
    clock: LoopClock
    connect: Connect
    prove: Prove
    new_password: NewPassword
    leadership: Leadership = ALONE
    outages: ApiOutages = NO_OUTAGES


async def broker_access(api: KubeApi, cluster: Cluster, prove: Prove) -> Credentials:
    """Return the operator's current credentials, or IN_CLEAR while some brokers may have no TLS listener.

    Raises ClusterUnreachable if the operator has no valid certificate yet. May also raise KubeUnreachable and
    KubeRefused.
    """
    if not is_reached_by_tls(cluster):
        return IN_CLEAR
    name = operator_certificate_name(cluster.metadata.name)
    found = await api.get("Secret", cluster.metadata.namespace or "default", name)
    if found is None or not is_owned(cluster, found):
        raise ClusterUnreachable(f"the operator's own certificate, in the Secret {name}, does not exist yet")
    data: Mapping[str, str] = found.get("data") or {}
    try:
        return prove(Identity(*(b64decode(data[each]).decode() for each in ("ca.crt", "tls.crt", "tls.key"))))
    except (KeyError, ValueError) as error:
        raise ClusterUnreachable(f"the Secret {name} holds no usable certificate: {error}") from error


class ParsedResources(Generic[ResourceT]):
    """The parsed resources of one kind and one Cluster."""

    def __init__(self, kind: type[ResourceT]) -> None:
        self._kind: Final = kind
        self._read: dict[str, tuple[str, ResourceT, str | None]] = {}
        """A mapping from the resource's name to the resourceVersion, the parsed resource, and the error of parsing.

        The error is None if the resource is valid or being deleted. A parsed resource lacks its invalid fields.
        """

    def all(self, bodies: Iterable[Json]) -> tuple[list[ResourceT], list[tuple[ResourceT, str]]]:
        """Return the valid resources, and the invalid resources with their errors.

        A resource that is being deleted is always returned as valid. An invalid or deleted resource lacks the fields
        that cannot be parsed.
        """
        before, self._read = self._read, {}
        for body in bodies:
            name, version = body["metadata"]["name"], body["metadata"]["resourceVersion"]
            known = before.get(name)
            self._read[name] = known if known is not None and known[0] == version else (version, *self._of(body))
        good = [resource for _, resource, wrong in self._read.values() if wrong is None]
        return good, [(resource, wrong) for _, resource, wrong in self._read.values() if wrong is not None]

    def status_of(self, name: str) -> Status | None:
        """Return the status of the resource with this name, as the last call of `all` parsed it."""
        return self._read[name][1].status

    def _of(self, body: Json) -> tuple[ResourceT, str | None]:
        try:
            return resource_of(self._kind, body), None
        except InvalidResource as error:
            part = readable_part(self._kind, body)
            return part, str(error) if part.metadata.deletion_timestamp is None else None


Bodies = Mapping[str, Json]
"""The resources of one kind by name, as the watch last reported them."""
Connected = Callable[[Cluster], ClusterAdmin]
"""A function that returns a connection to the brokers of a Cluster; called in threads."""


class Seen(NamedTuple):
    """The last observed state of the brokers, which each reconciler updates and returns."""

    state: ClusterState
    informed: Mapping[int, str | None] | None = None
    """The live brokers with the racks of their pods; None if the reconciliation does not wait for brokers to join."""
    restarting: Collection[int] = ()
    """The ids of the brokers that are restarting or still have to restart."""
    ahead: MovePlan | None = None
    """The reassignments that the status of the Cluster reports; None before the Topics are reconciled."""


class ReconcilerEnvironment(NamedTuple):
    """The clients and functions that a Cluster's reconcilers share."""

    key: Key
    worker_environment: WorkerEnvironment
    statuses: StatusWriter
    connected: Connected
    found: Callable[[str], Bodies]
    """A function that returns the Cluster's resources of a kind, as the watch last reported them."""


class KindReconciler(Protocol):
    """A reconciler for the resources of one kind in one Cluster."""

    @property
    def idle_s(self) -> float:
        """Return the seconds without progress of the background worker: infinite after its end, 0 without a worker."""
        return 0.0

    def close(self) -> None:
        """End the background worker, if there is one."""

    async def release(self, bodies: Bodies) -> None:
        """Remove the finalizers of resources that are no longer reconciled."""

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Remove the finalizers of deleted resources whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other resources.
        """

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the resources once, write their statuses, and return the new state of the brokers."""


class DirectReconciler(KindReconciler, Generic[ResourceT]):
    """A reconciler for resources that the worker of the Cluster reconciles itself, without a background worker."""

    def __init__(self, environment: ReconcilerEnvironment, kind: type[ResourceT]) -> None:
        self._clock: Final = environment.worker_environment.clock
        self._statuses: Final = environment.statuses
        self._connected: Final = environment.connected
        self._read: Final = ParsedResources(kind)

    async def release(self, bodies: Bodies) -> None:
        """Remove the finalizers of resources that are no longer reconciled."""
        await asyncio.gather(*(self._statuses.release(body) for body in bodies.values()))

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Remove the finalizers of deleted resources whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other resources.
        """
        (declared, ending), now = await self._readable(bodies), self._now()
        waiting = [*declared, *(each for each in ending if not may_go(each))]
        await self._write_statuses((with_waiting(each, why, now) for each in waiting), bodies)
        await self._release_others(ending, waiting, bodies)

    async def _readable(self, bodies: Bodies) -> tuple[list[ResourceT], list[ResourceT]]:
        """Return the declared resources and those that are being deleted; invalid ones get the error as status."""
        resources, invalid = self._read.all(bodies.values())
        now = self._now()
        await self._write_statuses(
            (with_problem(each, Refusal(INVALID_SPEC, why), now) for each, why in invalid), bodies
        )
        return (
            [each for each in resources if each.metadata.deletion_timestamp is None],
            [each for each in resources if each.metadata.deletion_timestamp is not None],
        )

    async def _with_finalizers(self, declared: Iterable[ResourceT], bodies: Bodies) -> list[ResourceT]:
        return await self._statuses.with_finalizers(
            declared, bodies, lambda each: each.spec.deletion_policy != "Retain"
        )

    async def _write_statuses(self, resources: Iterable[ResourceT], bodies: Bodies) -> list[ResourceT]:
        """Write the statuses that have changed; return the resources that no longer exist."""
        return await self._statuses.write(
            (each, body)
            for each, body in ((each, bodies[each.metadata.name]) for each in resources)
            if self._statuses.newer_than(body) is not None or each.status != self._read.status_of(each.metadata.name)
        )

    async def _release_others(self, ending: Iterable[ResourceT], kept: Iterable[ResourceT], bodies: Bodies) -> None:
        names = {each.metadata.name for each in ending} - {each.metadata.name for each in kept}
        await self.release({name: bodies[name] for name in names})

    def _now(self) -> str:
        return time_text(self._clock.now_ms())
