"""The clients, settings, clock and functions that the workers of Clusters share."""

import asyncio
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, Protocol

from barnabas_core.clock import LoopClock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_operator.kafka.cluster_admin import ClusterAdmin, TimedWrite
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.leader_election.election import ALONE, NO_OUTAGES, ApiOutages, Leadership
from barnabas_operator.manifests.kube_object import NOBODY_ELSE, Neighbours
from barnabas_operator.planning.brokers.broker_security import addresses_between_brokers, is_reached_by_tls
from barnabas_operator.planning.brokers.pods import is_owned
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import INVALID_SPEC, Refusal, time_text, with_problem
from barnabas_operator.planning.object_names import operator_certificate_name
from barnabas_operator.planning.rules_of_kinds import may_go, with_waiting
from barnabas_operator.planning.topics.reconcile_plan import MovePlan
from barnabas_operator.planning.users.user_secret import NewPassword
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.api_objects import InvalidResource, ResourceT, readable_part, resource_of
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json, Key, Status


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """The operator's settings. Without `namespaces` the operator watches all namespaces.

    `bootstrap` replaces the bootstrap address of every Cluster. A Cluster is reconciled `batch_s` after a change, every
    `busy_s` while a step is pending, and every `drift_s` otherwise. Consumer groups are reconciled every
    `group_look_s`, and active maintenance runs every `run_look_s`.

    Of all operators with the same `lease` (`NAMESPACE/NAME`), the leader acts; each has a different `identity`. Without
    a lease, the operator always acts.
    """

    broker_image: str
    namespaces: tuple[str, ...] = ()
    bootstrap: str = ""
    batch_s: float = 0.1
    busy_s: float = 0.5
    drift_s: float = 60.0
    group_look_s: float = 15.0
    run_look_s: float = 5.0
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
