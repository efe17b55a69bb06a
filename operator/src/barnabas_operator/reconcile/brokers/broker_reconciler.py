"""Reconciles a Cluster's brokers: applies their Kubernetes objects, and restarts or removes their pods step by step."""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, TOO_MANY, KubeApi, KubeRefused
from barnabas_operator.kube.gather import RESTART_ASKED, Nodes, gather_pods
from barnabas_operator.manifests.cluster_objects import broker_objects
from barnabas_operator.planning.brokers.broker_security import refuse_passing_port
from barnabas_operator.planning.brokers.broker_steps import (
    EVICTION_REFUSED,
    NOT_READY,
    BalanceLeaders,
    BrokerStep,
    RemoveBroker,
    RestartBroker,
    StartBrokers,
    balances_leaders,
    next_step,
    restart_batch,
    step_without_restarts,
)
from barnabas_operator.planning.brokers.cluster_checks import refuse_disks, refuse_older_image, same_disks
from barnabas_operator.planning.brokers.pods import (
    CANNOT_GROW,
    WAITING_FOR_ADDRESSES,
    BrokerPod,
    PodsState,
    brokers_holding,
    is_owned,
    stale_addresses,
    stale_brokers,
)
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import Refusal, listed, time_text
from barnabas_operator.planning.object_names import (
    CLUSTER_LABEL,
    STALE,
    broker_of,
    brokers_name,
    claim_name,
    pod_name,
    selector,
)
from barnabas_operator.planning.status.cluster_events import (
    PODS_ENDING,
    PODS_OVERDUE,
    TerminatingPod,
    is_away,
    is_slow,
    last_warning,
    restart_event,
    terminating_pod,
    why_not_bound,
    why_not_ended,
    why_not_made,
)
from barnabas_operator.planning.status.cluster_status import resize_failure
from barnabas_operator.reconcile.brokers.applied_objects import (
    AppliedObjects,
    ClaimsReconciler,
    ClusterSecretsReconciler,
    CompanionObjects,
    GarbageCollector,
    ObjectRefused,
    SupportingObjects,
)
from barnabas_operator.reconcile.worker_environment import EventWriter, WorkerEnvironment
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import Json

log = logging.getLogger(__name__)


class PodRestarts:
    """The restarts of brokers. Only the pod with the observed uid is deleted, never the pod that has replaced it."""

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._events = EventWriter(api)

    async def begin(
        self, cluster: Cluster, pods: Sequence[BrokerPod], *, overrides_budget: bool = False
    ) -> Refusal | None:
        """Evict the first pod, and then delete the other pods, which share no partition with the first pod.

        If the PodDisruptionBudget forbids the eviction, the first pod is deleted if `overrides_budget` is True; else no
        pod is restarted, and the refusal is returned.
        """
        first, *others = pods
        try:
            has_begun = await self._end(cluster, first, asks=True)
        except KubeRefused as error:
            if error.status != TOO_MANY:
                raise
            if not overrides_budget:
                message = f"broker {first.broker_id} must restart, but its eviction is refused: {error.message}"
                return Refusal(EVICTION_REFUSED, message)
            has_begun = await self._end(cluster, first, asks=False)
        if has_begun:
            await asyncio.gather(*(self._end(cluster, pod, asks=False) for pod in others))
        return None

    async def _end(self, cluster: Cluster, pod: BrokerPod, *, asks: bool) -> bool:
        """Evict the pod if `asks` is True, which a PodDisruptionBudget may forbid; otherwise delete the pod.

        A pod whose broker is down or cannot read the metadata is always deleted. Returns False if a new pod already
        has the name of this pod.
        """
        namespace = cluster.metadata.namespace
        try:
            if asks and not pod.is_lost:
                await self._api.evict(namespace, pod.name, pod.uid)
            else:
                await self._api.delete("Pod", namespace, pod.name, preconditions={"uid": pod.uid})
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            return False  # Another pod has replaced the pod; the next reconciliation reads the new pod.
        event = restart_event(cluster, pod, time_text(self._clock.now_ms()))
        log.info("%s/%s: %s", namespace, cluster.metadata.name, event["message"])
        await self._events.send(event)
        return True


async def mark_stale_pods(api: KubeApi, cluster: Cluster, pods: PodsState) -> None:
    """Annotate the pods of brokers that advertise an outdated address, so that these pods restart one by one.

    Call this function before the StatefulSet is changed, because only the StatefulSet stores the addresses that the
    running brokers advertise. Raises KubeUnreachable and KubeRefused.
    """
    for broker_id, why in stale_brokers(cluster, pods).items():
        pod, namespace = pods.pods[broker_id], cluster.metadata.namespace or "default"
        log.info("%s/%s: %s", namespace, pod.name, why)
        meta = {"uid": pod.uid, "annotations": {RESTART_ASKED: "true", STALE: why}}
        await api.patch("Pod", namespace, pod.name, {"metadata": meta})


CLAIM: Final = "PersistentVolumeClaim"
RESIZE_FAILED: Final = "VolumeResizeFailed"
ASK_S: Final = 5.0


class StartDiagnosis:
    """The search for reasons why pods of one Cluster do not start or end, and why their disks do not grow.

    The Events about one kind of object, such as Pod, are listed at most every 5 s.
    """

    def __init__(self, api: KubeApi, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._listed: dict[str, tuple[float, list[dict[str, Any]]]] = {}

    async def of(self, cluster: Cluster, pods: PodsState, now: str) -> str:
        """Return Kubernetes' reports about pods that do not start, do not end or are missing, and about their disks."""
        missing = [view.broker_id for view in pods.views() if not view.is_running]
        troubles = pods.troubles()
        unmade = await self.of_pods(cluster, missing) if missing else ""
        slow = [each for each in pods.pods.values() if each.is_down and not each.is_ending and not each.trouble]
        unstarted = await self._of_starts(cluster, [each for each in slow if is_slow(each.made_at, now)])
        unended = await self.of_ends(
            (TerminatingPod(each.name, each.node, each.ends_at) for each in pods.pods.values()), now
        )
        return "; ".join(filter(None, (unmade, troubles, unstarted, unended, await self.of_claims(cluster, troubles))))

    async def of_ends(self, pods: Iterable[TerminatingPod], now: str) -> str:
        """Return why deleted pods still exist after their grace period; empty if no pod is overdue."""
        overdue = [pod for pod in pods if pod.is_overdue(now)]
        nodes = sorted({pod.node for pod in overdue if pod.node})
        found = await asyncio.gather(*(self._api.get("Node", None, name) for name in nodes))
        return why_not_ended(overdue, [name for name, node in zip(nodes, found, strict=True) if is_away(node)])

    async def of_growth(self, cluster: Cluster, pods: PodsState) -> Refusal | None:
        """Return why disks do not grow, or None. Kubernetes before 1.33 reports failed resizes only as Events."""
        growing = [claim for claim in pods.claims if claim.resize is not None]
        if not growing:
            return None
        events = await self._events(cluster, {"involvedObject.kind": CLAIM, "type": "Warning"})
        failures = [event for event in events if event["reason"] == RESIZE_FAILED]
        warnings = {claim.name: last_warning(claim.name, failures) for claim in growing}
        texts = [f"{name}: {why}" for name, why in warnings.items() if why]
        return resize_failure(pods) or (Refusal(CANNOT_GROW, "; ".join(texts)) if texts else None)

    async def _of_starts(self, cluster: Cluster, slow: Collection[BrokerPod]) -> str:
        """Return a report on each pod in `slow`, with its last warning, for example about a failed mount."""
        events = await self._events(cluster, {"involvedObject.kind": "Pod", "type": "Warning"}) if slow else []
        reports = ((f"{pod.name} has not started since {pod.made_at}", last_warning(pod.name, events)) for pod in slow)
        return "; ".join(": ".join(filter(None, each)) for each in reports)

    async def of_pods(self, cluster: Cluster, numbers: Collection[int]) -> str:
        """Return why these brokers have no pod; empty if Kubernetes reports no reason."""
        name = cluster.metadata.name
        about = {"involvedObject.kind": "StatefulSet", "involvedObject.name": brokers_name(name)}
        names = [pod_name(name, number) for number in numbers]
        why = why_not_made(names, await self._events(cluster, about))
        return f"waiting for Kubernetes to start broker {', '.join(map(str, numbers))}: {why}" if why else ""

    async def of_claims(self, cluster: Cluster, troubles: str) -> str:
        """Return why pods wait for their disks; empty if no pod waits, or Kubernetes reports no reason."""
        if CLAIM not in troubles:
            return ""
        name = brokers_name(cluster.metadata.name)
        claims = [f"{claim_name(volume.id)}-{name}-" for volume in cluster.spec.storage.volumes]
        return why_not_bound(claims, await self._events(cluster, {"involvedObject.kind": CLAIM, "type": "Warning"}))

    async def _events(self, cluster: Cluster, about: Mapping[str, str]) -> list[dict[str, Any]]:
        kind, now_s = about["involvedObject.kind"], self._clock.monotonic_s()
        asked_at, events = self._listed.get(kind, (-math.inf, []))
        if now_s - asked_at >= ASK_S:
            try:
                events = await self._api.listing("Event", cluster.metadata.namespace or "default", {}, about)
            except KubeRefused as error:  # The right to list Events is optional.
                log.debug("the Events about %s could not be listed: %s", about, error)
            self._listed[kind] = now_s, events
        return events


AWAITED_KINDS: Final = frozenset({"Pod", "StatefulSet", "PersistentVolumeClaim", "Service"})
"""The kinds whose events cause a reconciliation, because brokers may wait for a pod, a claim or a Service."""
RECREATED: Final = Refusal(
    NOT_READY, "waiting for Kubernetes to delete the StatefulSet; a new StatefulSet takes over its pods"
)


class BrokersOutcome(NamedTuple):
    """The outcome of one reconciliation of a Cluster's brokers.

    `waiting` says why the brokers are not yet as declared, and is None if they are. `balance` is True if the caller
    must elect the preferred leaders. `trouble` says why pods do not start or do not end, and is empty if there are no
    such pods.
    """

    pods: PodsState
    waiting: Refusal | None
    balance: bool = False
    trouble: str = ""


class BrokerReconciler:
    """The reconciler of one Cluster's brokers. All its state is a cache that saves requests."""

    def __init__(self, environment: WorkerEnvironment) -> None:
        api, settings, clock = environment.api, environment.settings, environment.clock
        self._api = api
        self._settings = settings
        self._clock = clock
        self._outages = environment.outages
        self._claims = ClaimsReconciler(api)
        self._diagnosis = StartDiagnosis(api, clock)
        self._restarts = PodRestarts(api, clock)
        self._objects = AppliedObjects(api)
        self._garbage = GarbageCollector(api, self._objects, self._claims)
        self._nodes = Nodes(api)
        self._supporting = SupportingObjects(api, self._objects, settings.neighbours)
        self._companions = CompanionObjects(api, self._objects, self._supporting, settings)
        self.secrets = ClusterSecretsReconciler(api, self._objects, self._nodes, clock, environment.new_password)
        self._places = 0
        self.unbalanced = True  # A new operator does not know whether the leaders are balanced.

    def forget(self) -> None:
        """Empty all caches, so that changes by other clients are undone."""
        self._objects.forget()
        self._nodes.forget()
        self.secrets.forget()
        self._claims.forget()
        self._garbage.forget()
        self._supporting.forget()
        self._companions.forget()

    def object_event(self, found: Json, *, is_gone: bool) -> bool:
        """Note a changed or deleted object of the Cluster; return True if a reconciliation is needed.

        An object that another client has changed or deleted is applied again in that reconciliation.
        """
        return self._objects.object_event(found, is_gone=is_gone) or found["kind"] in AWAITED_KINDS

    async def advance(self, cluster: Cluster, state: ClusterState | None) -> BrokersOutcome:
        """Apply the brokers' Kubernetes objects; then take at most one step: start, restart or remove brokers.

        `state` is None if no broker answers.
        """
        refused = await self._supporting.apply(cluster, self._places)
        pods = await gather_pods(self._api, cluster, self._nodes)
        stage = pods.next_stage(cluster)
        pods = pods.at_stage(stage)
        # Certificates expire, so they are renewed whatever else is refused.
        insecure = await self.secrets.reconcile(cluster, pods)
        self._places = brokers_holding(state, max(pods.count, cluster.spec.brokers.replicas))
        # A new StatefulSet also starts the brokers that are to be removed, so they need external addresses, too.
        begins = pods.broker_set is None
        lacking = pods.external.lacking(cluster, self._places if begins else 0)
        if lacking:
            return BrokersOutcome(pods, refused or Refusal(WAITING_FOR_ADDRESSES, f"waiting for {lacking[0]}"))
        running = pods.broker_set.image if pods.broker_set is not None else ""
        blocked = (
            refuse_passing_port(cluster, min(pods.stages, default=stage))
            or refuse_disks(cluster, pods.volumes, pods.lasting_claims)
            or refuse_older_image(cluster, state, running, self._settings.broker_image)
            or insecure
        )
        if blocked is not None:
            return BrokersOutcome(pods, blocked)
        try:
            is_new = await self._apply_brokers(cluster, pods)
        except ObjectRefused as error:
            # The reconciliation goes on, because the refused objects do not affect running brokers.
            return BrokersOutcome(pods, error.refusal)
        if is_new:
            pods = (await gather_pods(self._api, cluster, self._nodes)).at_stage(stage)
        if pods.broker_set is None or pods.broker_set.is_ending:
            return BrokersOutcome(pods, refused or RECREATED)
        await self._garbage.remove(cluster, pods, state)
        await self._claims.label(cluster, pods)
        await self._claims.discard(cluster, pods)
        ungrown = await self._claims.grow(cluster, pods.lasting_claims) or await self._diagnosis.of_growth(
            cluster, pods
        )
        outcome = await self._step(cluster, pods, state)
        return outcome._replace(waiting=refused or stale_addresses(pods) or outcome.waiting or ungrown)

    async def renew_secrets(self, cluster: Cluster) -> None:
        """Renew the Secrets if there are brokers, and change nothing else. Raises KubeUnreachable and KubeRefused."""
        pods = await gather_pods(self._api, cluster, self._nodes)
        if pods.broker_set is not None:
            await self.secrets.reconcile(cluster, pods.at_stage(pods.next_stage(cluster)))

    async def reconcile_companions(self, cluster: Cluster) -> Refusal | None:
        """Reconcile the lag exporter and the maintenance schedules; return the error to report, or None.

        May raise KubeUnreachable and KubeRefused.
        """
        return await self._companions.reconcile(cluster)

    async def erase(self, cluster: Cluster) -> Refusal | None:
        """Stop the brokers, then delete disks, metadata and Secrets by the deletion policy.

        Return why the deletion must wait, or None if it is done or a new Cluster owns the objects.
        """
        namespace, name = cluster.metadata.namespace or "default", cluster.metadata.name
        there = await self._api.get("Cluster", namespace, name)
        if there is not None and there["metadata"]["uid"] != cluster.metadata.uid:
            return None  # A new Cluster of the same name now owns the objects.
        await self._end_brokers(cluster)
        found = [terminating_pod(each) for each in await self._api.listing("Pod", namespace, selector(name))]
        pods = [pod for pod in found if broker_of(pod.name, name) is not None]
        if pods:
            waited_for = f"waiting for {listed([pod.name for pod in pods])} to end before disks are deleted"
            why = await self._diagnosis.of_ends(pods, time_text(self._clock.now_ms()))
            return Refusal(PODS_OVERDUE, f"{waited_for}: {why}") if why else Refusal(PODS_ENDING, waited_for)
        if cluster.spec.deletion_policy == "Delete":
            for kind in ("StateDocument", "Lease"):
                await self._api.delete_all(kind, namespace, {CLUSTER_LABEL: name})
            await self.secrets.erase(cluster)
        await self._claims.erase(cluster)
        return None

    async def _end_brokers(self, cluster: Cluster) -> None:
        namespace, name = cluster.metadata.namespace, brokers_name(cluster.metadata.name)
        found = await self._api.get("StatefulSet", namespace, name)
        if found is not None and is_owned(cluster, found):
            self._objects.forget_one("StatefulSet", name)
            await self._api.delete("StatefulSet", namespace, name, preconditions={"uid": found["metadata"]["uid"]})

    async def namespace_ends(self, cluster: Cluster) -> bool:
        """True if the namespace is being deleted, or no longer exists."""
        found = await self._api.get("Namespace", None, cluster.metadata.namespace or "default")
        return found is None or "deletionTimestamp" in found["metadata"]

    async def _apply_brokers(self, cluster: Cluster, pods: PodsState) -> bool:
        """Apply the settings and the StatefulSet; return True if something has changed.

        If the declared volumes differ from the StatefulSet's volumes, the StatefulSet is deleted without its pods, so
        that the next reconciliation creates it again. Pods with outdated addresses are annotated first.
        """
        if pods.broker_set is not None and pods.broker_set.is_ending:
            return False
        if pods.broker_set is None:
            self._objects.forget_one("StatefulSet", brokers_name(cluster.metadata.name))
        settings, broker_set = broker_objects(cluster, pods.external, self._settings.broker_image, self._places)
        is_other = pods.broker_set is not None and not same_disks(cluster, pods.volumes)
        await self._objects.ask(broker_set)
        await mark_stale_pods(self._api, cluster, pods)
        if is_other:
            await self._make_way(cluster)
            return True
        changed = await self._objects.apply(cluster, settings)
        return await self._objects.apply(cluster, broker_set) or changed

    async def _make_way(self, cluster: Cluster) -> None:
        """Delete the StatefulSet but keep its pods, because its volumeClaimTemplates cannot be changed."""
        namespace, name = cluster.metadata.namespace, brokers_name(cluster.metadata.name)
        self._objects.forget_one("StatefulSet", name)
        await self._api.delete("StatefulSet", namespace, name, propagationPolicy="Orphan")

    async def _step(self, cluster: Cluster, pods: PodsState, state: ClusterState | None) -> BrokersOutcome:
        choose = step_without_restarts if cluster.spec.rolling.pause else next_step
        step = choose(
            cluster.spec.brokers.replicas,
            pods.views(),
            state,
            unbalanced=self.unbalanced and balances_leaders(cluster),
            since_outage_s=self._outages.since_last_s,
        )
        waiting = step if isinstance(step, Refusal) else await self._carry_out(cluster, pods, state, step)
        trouble = await self._diagnosis.of(cluster, pods, time_text(self._clock.now_ms()))
        return BrokersOutcome(pods, waiting, isinstance(step, BalanceLeaders), trouble)

    async def _carry_out(
        self, cluster: Cluster, pods: PodsState, state: ClusterState | None, step: BrokerStep | None
    ) -> Refusal | None:
        match step:
            case StartBrokers(numbers):
                return Refusal(NOT_READY, f"waiting for Kubernetes to start broker {', '.join(map(str, numbers))}")
            case RestartBroker(number, overrides_budget):
                batch = restart_batch(number, pods.views(), state, cluster.spec.rolling.max_unavailable_per_rack)
                restarting = [pods.pods[each] for each in batch]
                unbound = await self._claims.refuse_restart(cluster, pods, restarting)
                if unbound is not None:
                    return unbound
                self.unbalanced = True  # The flag is set first, because the response to the request may be lost.
                refused = await self._restarts.begin(cluster, restarting, overrides_budget=overrides_budget)
                return refused or Refusal(NOT_READY, f"broker {', '.join(map(str, batch))} restarts")
            case RemoveBroker(number):
                await self._claims.mark(cluster, pods.lasting_claims, number)
                await self._scale(cluster, number)
                return Refusal(NOT_READY, f"broker {number} is removed")
        unready = pods.unready()
        if unready:
            return Refusal(NOT_READY, f"waiting for broker {', '.join(map(str, unready))} to be ready")
        if not pods.is_rolled_out:
            return Refusal(NOT_READY, "waiting for Kubernetes to observe the StatefulSet")
        return None

    async def _scale(self, cluster: Cluster, replicas: int) -> None:
        name = brokers_name(cluster.metadata.name)
        await self._api.patch("StatefulSet", cluster.metadata.namespace, name, {"spec": {"replicas": replicas}})
        self._objects.forget_one("StatefulSet", name)
