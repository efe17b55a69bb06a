"""The reconcilers of the resources of one kind: their interface, and the base class of those without a worker."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Generic, NamedTuple, Protocol

from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.refusal import INVALID_SPEC, Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.planning.topics.move_plan import MovePlan
from barnabas_operator.planning.waiting_resources import may_go, with_waiting
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.reconcile.worker_environment import WorkerEnvironment
from barnabas_operator.resources.api_objects import ResourceT
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.object_key import Key

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
