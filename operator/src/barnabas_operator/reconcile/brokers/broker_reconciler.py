"""Reconciles a Cluster's brokers: applies their Kubernetes objects, and restarts or removes their pods step by step."""

from typing import Final, NamedTuple

from barnabas_operator.kube.gather import gather_pods
from barnabas_operator.kube.nodes import Nodes
from barnabas_operator.manifests.cluster_objects import broker_objects
from barnabas_operator.planning.brokers.broker_security import refuse_passing_port
from barnabas_operator.planning.brokers.broker_steps import (
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
from barnabas_operator.planning.brokers.claims import refuse_disks, same_disks
from barnabas_operator.planning.brokers.cluster_checks import refuse_older_image
from barnabas_operator.planning.brokers.pods import (
    WAITING_FOR_ADDRESSES,
    PodsState,
    brokers_holding,
    is_owned,
    stale_addresses,
)
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.object_names import CLUSTER_LABEL, broker_of, brokers_name, selector
from barnabas_operator.planning.refusal import Refusal, listed
from barnabas_operator.planning.status.terminating_pods import PODS_ENDING, PODS_OVERDUE, terminating_pod
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.brokers.applied_objects import AppliedObjects, ObjectRefused
from barnabas_operator.reconcile.brokers.claims_reconciler import ClaimsReconciler
from barnabas_operator.reconcile.brokers.cluster_secrets_reconciler import ClusterSecretsReconciler
from barnabas_operator.reconcile.brokers.companion_objects import CompanionObjects
from barnabas_operator.reconcile.brokers.garbage_collector import GarbageCollector
from barnabas_operator.reconcile.brokers.pod_restarts import PodRestarts, mark_stale_pods
from barnabas_operator.reconcile.brokers.start_diagnosis import StartDiagnosis
from barnabas_operator.reconcile.brokers.supporting_objects import SupportingObjects
from barnabas_operator.reconcile.worker_environment import WorkerEnvironment
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.json_types import Json

TELLING: Final = frozenset({"Pod", "StatefulSet", "PersistentVolumeClaim", "Service"})
"""The kinds whose events cause a reconciliation, because brokers may wait for a pod, a claim or a Service."""
MADE_ANEW: Final = Refusal(
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
        return self._objects.object_event(found, is_gone=is_gone) or found["kind"] in TELLING

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
            return BrokersOutcome(pods, refused or MADE_ANEW)
        await self._garbage.remove(cluster, pods, state)
        await self._claims.label(cluster, pods)
        await self._claims.discard(cluster, pods)
        ungrown = await self._claims.grow(cluster, pods.lasting_claims) or await self._diagnosis.of_growth(
            cluster, pods
        )
        outcome = await self._step(cluster, pods, state)
        return outcome._replace(waiting=refused or stale_addresses(pods) or outcome.waiting or ungrown)

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
