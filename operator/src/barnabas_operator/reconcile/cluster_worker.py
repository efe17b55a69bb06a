"""The worker of one Cluster, which reconciles the Cluster and its resources, one reconciliation at a time."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import IN_CLEAR
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.observed.inventory import Inventory
from barnabas_operator.planning.brokers.broker_security import is_reached_by_tls
from barnabas_operator.planning.brokers.broker_steps import BROKERS_UNREACHABLE, ROLLING_PAUSED
from barnabas_operator.planning.brokers.cluster_checks import read_cluster, why_left
from barnabas_operator.planning.brokers.cluster_secrets import with_users
from barnabas_operator.planning.brokers.pods import CANNOT_GROW, PodsState
from barnabas_operator.planning.cluster_state import APPROVAL, ClusterState
from barnabas_operator.planning.conditions import (
    DELETION_PROTECTED,
    INVALID_CONFIG,
    INVALID_SPEC,
    KUBERNETES_ERROR,
    NOT_SUPPORTED,
    RESOURCE_CONFLICT,
    Refusal,
    time_text,
)
from barnabas_operator.planning.status.cluster_status import NOTHING_FOUND, Findings, cluster_status
from barnabas_operator.reconcile.brokers.broker_reconciler import BrokerReconciler, BrokersOutcome
from barnabas_operator.reconcile.brokers.dynamic_config_reconciler import (
    AdministratorReconciler,
    DynamicConfigReconciler,
    VersionOutcome,
    reconcile_metadata_version,
)
from barnabas_operator.reconcile.groups.group_poller import group_poller
from barnabas_operator.reconcile.groups.offset_resets import give_back_target
from barnabas_operator.reconcile.maintenance.run_poller import RunPoller
from barnabas_operator.reconcile.reconcile_parts import (
    BrokerBackoff,
    LastKnownState,
    PollWorker,
    ReconcileIncomplete,
    ReconcileParts,
    RetryingLoop,
    ShortOutages,
    blocking,
)
from barnabas_operator.reconcile.topics.topic_reconciler import TopicReconciler
from barnabas_operator.reconcile.users.user_reconciler import UserReconciler
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    KindReconciler,
    ReconcilerEnvironment,
    Seen,
    StatusWriter,
    WorkerEnvironment,
    broker_access,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP
from barnabas_operator.resources.kind import Json, Key, is_made_insecure
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB
from barnabas_operator.resources.topic import TOPIC
from barnabas_operator.resources.user import USER

RECONCILERS: Final[Mapping[str, Callable[[ReconcilerEnvironment], KindReconciler]]] = {
    TOPIC.name: TopicReconciler,
    USER.name: UserReconciler,
    CONSUMER_GROUP.name: lambda environment: PollWorker(environment, group_poller(environment)),
    MAINTENANCE_JOB.name: lambda environment: PollWorker(environment, RunPoller(environment)),
}
"""The reconcilers by the field `kind`, in the order in which they run."""

WITHOUT_CLUSTER: Final[Mapping[str, Callable[[KubeApi, Clock, Json], Awaitable[None]]]] = {
    CONSUMER_GROUP.name: give_back_target,
}
"""The functions that clean up after resources without a Cluster, by the field `kind`."""

BodiesByKind = Mapping[str, Bodies]
"""The resources of a Cluster by kind."""


class ResourceReconcilers:
    """The reconcilers of one Cluster, called kind by kind."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        self._environment: Final = environment
        self._reconcilers: Final = {kind: make(environment) for kind, make in RECONCILERS.items()}

    @property
    def idle_s(self) -> Mapping[str, float]:
        """Return the seconds without progress of each background worker, by kind of the worker's resources."""
        return {kind: reconciler.idle_s for kind, reconciler in self._reconcilers.items()}

    def close(self) -> None:
        """End the background workers."""
        for reconciler in self._reconcilers.values():
            reconciler.close()

    def found(self) -> BodiesByKind:
        """Return the Cluster's resources by kind, as the watch last reported them."""
        return {kind: self._environment.found(kind) for kind in self._reconcilers}

    async def release(self, found: BodiesByKind) -> None:
        """Remove the finalizers of resources that are no longer reconciled.

        Before that, undo temporary changes, such as the scaling down of a workload for an offset reset.
        """
        for kind, reconciler in self._reconcilers.items():
            await reconciler.release(found[kind])

    async def wait(self, found: BodiesByKind, why: str) -> None:
        """Remove the finalizers of deleted resources whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other resources.
        """
        for kind, reconciler in self._reconcilers.items():
            await reconciler.wait(found[kind], why)

    async def reconcile(self, cluster: Cluster, found: BodiesByKind, seen: Seen, parts: ReconcileParts) -> Seen:
        """Reconcile the resources kind by kind; return the new state of the brokers."""
        for kind, reconciler in self._reconcilers.items():
            seen = await parts.run(reconciler.reconcile(cluster, found[kind], seen)) or seen
        return seen


log = logging.getLogger(__name__)

POD: Final = "Pod"
BATCH_S_MAX: Final = 2.0
PROTECTED: Final = Refusal(
    DELETION_PROTECTED, "spec.deletionPolicy is Protect; set Delete or Retain to let the Cluster be deleted"
)
STAYS: Final = frozenset({CANNOT_GROW, INVALID_SPEC, NOT_SUPPORTED, RESOURCE_CONFLICT, ROLLING_PAUSED})
"""The reasons for waiting that only an action of a user can end; for these reasons, the worker does not retry soon."""


class ClusterWorker:
    """The worker of one Cluster. `run` lasts until the Cluster is deleted; `wake` asks for a reconciliation."""

    def __init__(
        self,
        key: Key,
        inventory: Inventory,
        environment: WorkerEnvironment,
        on_round: Callable[[float, bool], None],
    ) -> None:
        self.key = key
        self._inventory = inventory
        self._settings = environment.settings
        self._leadership = environment.leadership
        self._clock = environment.clock
        self._connect, self._prove, self._api = environment.connect, environment.prove, environment.api
        self._access, self._by_tls = IN_CLEAR, False
        self._statuses = StatusWriter(environment.api, self._clock)
        self._brokers = BrokerReconciler(environment)
        self._on_round = on_round
        reconciling = ReconcilerEnvironment(key, environment, self._statuses, self._connected, self._found)
        self._resources = ResourceReconcilers(reconciling)
        self._running = DynamicConfigReconciler(self._connected)
        self._administrator = AdministratorReconciler(environment.api, self._connected)
        self._last_known = LastKnownState(self._clock.monotonic_s)
        self._outages = ShortOutages(self._clock.monotonic_s)
        self._backoff = BrokerBackoff(self._settings.busy_s, self._clock.monotonic_s)
        self._pods: PodsState | None = None
        self._admin: ClusterAdmin | None = None
        self._has_ended = False
        self._woken = asyncio.Event()
        self._applied_at = -math.inf
        self._took_s = 0.0
        what, retry_s = "/".join(key), self._settings.busy_s
        self._loop = RetryingLoop(what, self._pause, self._round, self._clock, retry_s, self._round_ended)
        self.state: ClusterState | None = None
        """The state of the cluster when the operator last asked the brokers, or None if no broker answered."""

    def wake(self) -> None:
        """Ask for a reconciliation soon."""
        self._woken.set()

    def object_event(self, found: Json, *, is_gone: bool) -> None:
        """Wake the worker if a change of this object, such as a Service, needs a reconciliation.

        A change of a pod also ends the backoff, so that the brokers are asked again.
        """
        if found["kind"] == POD:
            self._backoff.renew()
        if self._brokers.object_event(found, is_gone=is_gone):
            self.wake()

    @property
    def idle_s(self) -> Mapping[str, float]:
        """The seconds without progress, for this worker and each background worker; infinite for an ended worker."""
        beside = {f"worker for {kind}s": idle_s for kind, idle_s in self._resources.idle_s.items()}
        return {"worker": self._idle_s, **beside}

    @property
    def _idle_s(self) -> float:
        """Return the seconds since the running reconciliation last made progress; 0 between reconciliations."""
        answered_at = self._admin.answered_at if self._admin is not None else 0.0
        return self._loop.idle_s(max(self._statuses.wrote_at, answered_at))

    async def run(self) -> None:
        """Reconcile repeatedly until cancelled; then end the background workers and the connection to the brokers."""
        try:
            await self._loop.run()
        finally:
            self._has_ended = True
            self._resources.close()
            self._drop_admin()

    async def _round(self) -> float:
        self._statuses.begin()
        pause_s = await self._reconcile_once()
        self._statuses.check()
        return pause_s

    def _round_ended(self, took_s: float, has_succeeded: bool) -> None:
        self._took_s = took_s
        if not has_succeeded:
            self._drop_admin()
        if self._leadership.is_held:
            self._on_round(took_s, has_succeeded)

    async def _pause(self, seconds: float) -> None:
        """Wait at most `seconds` for a change; after a change, wait until the series of changes has ended.

        The series has ended if no change arrives for as long as the previous reconciliation took, but after 2 s at the
        latest. Without this wait, reconciliations would delay the webhook, which runs in the same process and is called
        for each of hundreds of deleted Topics.
        """
        with suppress(TimeoutError):
            async with self._clock.timeout(seconds):
                await self._woken.wait()
            until = self._clock.monotonic_s() + BATCH_S_MAX
            while self._woken.is_set():
                self._woken.clear()
                left_s = until - self._clock.monotonic_s()
                await self._clock.sleep(max(0.0, min(left_s, max(self._settings.batch_s, self._took_s))))
                if left_s <= 0:
                    break
        self._woken.clear()

    async def _reconcile_once(self) -> float:
        """Reconcile or delete the Cluster, or only report its state; return the seconds until the next call."""
        body = self._inventory.clusters.get(self.key)
        if body is None:
            return self._settings.drift_s
        if not self._leadership.is_held:
            return await self._stand_by(body)
        resources = self._resources.found()
        if self._clock.monotonic_s() - self._applied_at > self._settings.drift_s:
            self._brokers.forget()
            self._statuses.forget()
            self._running.forget()
            self._administrator.forget()
            self._applied_at = self._clock.monotonic_s()
        if "deletionTimestamp" in body["metadata"]:
            return await self._delete(body, resources)
        cluster, problem = read_cluster(body)
        if problem is None and is_made_insecure(body):
            body = await self._statuses.write_insecure(body)
        if problem is not None or cluster.spec.pause:
            return await self._leave_alone(cluster, body, resources, problem, why_left(cluster, problem))
        return await self._reconcile(cluster, body, resources)

    def _found(self, kind: str) -> Bodies:
        return {body["metadata"]["name"]: body for body in self._inventory.resources_of(kind, self.key)}

    async def _stand_by(self, body: Json) -> float:
        """Read the brokers' state for the webhook, and change nothing, because another operator holds the lease."""
        self.state = await self._ask_brokers(read_cluster(body)[0])
        return self._settings.drift_s

    async def _leave_alone(
        self, cluster: Cluster, body: Json, resources: BodiesByKind, problem: Refusal | None, why: str
    ) -> float:
        """Write only statuses for a paused or invalid Cluster; return the seconds until the next reconciliation.

        If the whole spec of an invalid Cluster can be read, its Secrets are renewed, too, because certificates expire.
        """
        await self._resources.wait(resources, why)
        await self._write_status(cluster, body, problem)
        if problem is not None and problem.reason == INVALID_CONFIG and not cluster.spec.pause:
            await self._brokers.renew_secrets(cluster)
        return self._settings.drift_s

    async def _delete(self, body: Json, resources: BodiesByKind) -> float:
        """Delete the Cluster's objects as its deletion policy says; return the seconds until the next reconciliation.

        With the policy Protect, the Cluster is reconciled as if it were not deleted. With other policies, the Cluster's
        Topics, Users and other resources lose their finalizers.
        """
        cluster, problem = read_cluster(body)
        if await self._brokers.namespace_ends(cluster):
            return await self._release_all(body, resources)
        if cluster.spec.deletion_policy == "Protect":
            if problem is not None or cluster.spec.pause:
                return await self._leave_alone(cluster, body, resources, PROTECTED, why_left(cluster, problem))
            return await self._reconcile(cluster, body, resources, PROTECTED)
        await self._resources.release(resources)
        parts = ReconcileParts("/".join(self.key))
        waiting = await parts.run(self._brokers.erase(cluster)) if cluster.erases else None
        problem = parts.problem() or waiting
        if problem is not None:
            await self._write_status(cluster, body, problem)
        parts.check()
        if waiting is not None:
            return self._settings.busy_s
        await self._statuses.release(body)
        return self._settings.drift_s

    async def _release_all(self, body: Json, resources: BodiesByKind) -> float:
        """Remove finalizers only, because the namespace is being deleted, and other requests may be forbidden."""
        await self._resources.release(resources)
        is_gone = await self._statuses.release(body)
        return self._settings.drift_s if is_gone else self._settings.busy_s

    async def _reconcile(
        self, cluster: Cluster, body: Json, resources: BodiesByKind, first: Refusal | None = None
    ) -> float:
        """Reconcile the Cluster once; return the seconds until the next reconciliation.

        The Cluster's status reports the problem `first`, if given, instead of any other problem.
        """
        parts = ReconcileParts("/".join(self.key))
        await parts.run(self._statuses.set_finalizer(body, wanted=_needs_finalizer(cluster)))
        state = await parts.run(self._ask_brokers(cluster))
        brokers = await parts.run(self._brokers.advance(cluster, state))
        self._pods = brokers.pods if brokers is not None else self._pods
        if brokers is not None and state is not None:
            await parts.run(self._maintain_brokers(cluster, brokers, state))
        seen = await parts.run(self._reconcile_resources(cluster, resources, state, parts))
        state = self.state = seen.state if seen is not None else state
        waiting = brokers.waiting if brokers is not None else None
        version = await parts.run(self._reconcile_version(cluster, brokers, state)) or VersionOutcome()
        beside = await parts.run(self._brokers.reconcile_companions(cluster))
        problem = parts.problem()
        self._note_state(state, problem)
        trouble = brokers.trouble if brokers is not None else ""
        ahead = seen.ahead if seen is not None else None
        if self._outages.is_one(parts):
            parts.check()
        found = Findings(self._pods, state or self._last_known.state, None, trouble, self._last_known.silence, ahead)
        await self._write_status(
            cluster, body, first or first_problem(beside or waiting, problem) or version.refusal, found
        )
        if ahead is not None and ahead.is_rebalanced:
            # If the status was refused, `check` raises, so that APPROVAL stays until a status reports the rebalance.
            self._statuses.check()
            await parts.run(self._statuses.take_annotation(body, APPROVAL))
        parts.check()
        for refusal in (waiting, beside):
            if refusal is not None and refusal.reason == KUBERNETES_ERROR:
                raise ReconcileIncomplete(refusal.message)
        is_waiting = waiting is not None and waiting.reason not in STAYS
        # After leaders were balanced or the metadata version was raised, the next change may be possible at once.
        is_stepping = (brokers is not None and brokers.balance) or version.done is not None
        is_behind = state is None or state.is_moving or bool(state.troubles or state.awaited)
        is_busy = is_waiting or is_stepping or is_behind or (ahead is not None and ahead.are_within)
        return self._settings.busy_s if is_busy else self._settings.drift_s

    async def _reconcile_resources(
        self, cluster: Cluster, resources: BodiesByKind, state: ClusterState | None, parts: ReconcileParts
    ) -> Seen | None:
        """Reconcile the resources; while no broker answers, only write statuses and remove finalizers."""
        if state is None or self._pods is None:
            await self._resources.wait(resources, f"Cluster {cluster.metadata.name} does not answer yet")
            return None
        pods = self._pods.pods
        informed = {number: pods[number].rack if number in pods else None for number in state.racks}
        due = () if cluster.spec.rolling.pause else self._pods.remaining()
        restarting = {*due, *self._pods.unready()}
        return await self._resources.reconcile(cluster, resources, Seen(state, informed, restarting), parts)

    async def _reconcile_version(
        self, cluster: Cluster, brokers: BrokersOutcome | None, state: ClusterState | None
    ) -> VersionOutcome:
        """Raise the metadata version after a rolling restart; return the change or the refusal, if any.

        Call this method last: the Event about the change needs a status that reports the previous version.
        """
        if brokers is None or state is None or not brokers.pods.is_rolled_out:
            return VersionOutcome()
        return await blocking(
            lambda: reconcile_metadata_version(self._connected(cluster), cluster, brokers.pods.views(), state)
        )

    async def _maintain_brokers(self, cluster: Cluster, brokers: BrokersOutcome, state: ClusterState) -> None:
        """Set dynamic configs and find stray logs. Also elect the preferred leaders if `brokers.balance` is True.

        Set ACLs and `admin`'s password after all restarts. Unregister removed brokers once brokers are as declared.
        """
        if brokers.balance:
            await self._running.balance(cluster)
            self._brokers.unbalanced = False
        await self._running.set_configs(cluster, brokers.pods, state)
        await self._running.find_strays(cluster, state)
        # Wait for all restarts, because a broker with old settings may lack the SASL listener or the authorizer.
        if not brokers.pods.remaining():
            await self._administrator.reconcile(cluster, self._brokers.secrets.data)
        if brokers.waiting is None:
            await self._running.unregister_removed(cluster)

    async def _ask_brokers(self, cluster: Cluster) -> ClusterState | None:
        """Return the state that the brokers report; None during the backoff, or if no broker answers."""
        if not self._backoff.is_over:
            return None
        if self._by_tls is not (by_tls := is_reached_by_tls(cluster)):
            self._drop_admin()
            self._by_tls = by_tls
        try:
            if self._admin is None:
                self._access = await broker_access(self._api, cluster, self._prove)
            state = await blocking(lambda: self._connected(cluster).cluster_state())
        except ClusterUnreachable as error:
            log.debug("%s/%s: %s", *self.key, error)
            self._last_known.missed(
                f"no broker answers the operator at {self._settings.bootstrap_of(cluster)}: {error}"
            )
            self._backoff.lose()
            self._drop_admin()
            return None
        self._backoff.renew()
        return state

    def _note_state(self, state: ClusterState | None, problem: Refusal | None) -> None:
        if problem is not None and problem.reason == BROKERS_UNREACHABLE:
            self._last_known.missed(problem.message)
        elif state is not None:
            self._last_known.reported(state)

    async def _write_status(
        self, cluster: Cluster, body: Json, why: Refusal | None, found: Findings = NOTHING_FOUND
    ) -> None:
        now = time_text(self._clock.now_ms())
        certificates = with_users(self._brokers.secrets.certificates, self._found(USER.name).values())
        left_out = self._brokers.secrets.nodes_left_out
        found = found._replace(strays=self._running.strays, certificates=certificates, nodes_left_out=left_out)
        status = cluster_status(cluster, now, why, found)
        await self._statuses.write([(replace(cluster, status=status), body)])

    def _connected(self, cluster: Cluster) -> ClusterAdmin:
        """Return the connection to the brokers; connect if there is none. Call this method in a thread.

        Raises ClusterUnreachable if no broker answers, or if the worker has ended.
        """
        admin = self._admin
        if admin is None:
            bootstrap, writing = self._settings.bootstrap_of(cluster), self._leadership.writing
            admin = self._admin = self._connect(bootstrap, self._settings.drift_s, writing, self._access)
        if self._has_ended:
            admin.close()
            raise ClusterUnreachable("the worker of the Cluster has ended")
        return admin

    def _drop_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin = None


def _needs_finalizer(cluster: Cluster) -> bool:
    """True if the operator must act, or report an error, before the Cluster is deleted."""
    return cluster.erases or cluster.spec.deletion_policy != "Retain"


def first_problem(waiting: Refusal | None, problem: Refusal | None) -> Refusal | None:
    """Return the problem that the status reports: `problem`, the error of the reconciliation, or else `waiting`.

    If `problem` has the reason BROKERS_UNREACHABLE, then `waiting` (what the Cluster waits for) takes precedence.
    """
    if waiting is not None and (problem is None or problem.reason == BROKERS_UNREACHABLE):
        return waiting
    return problem
