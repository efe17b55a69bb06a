"""The workers of all Clusters, which are started, woken and ended by watch events."""

import asyncio
from functools import partial
from typing import Final

from barnabas_operator.observed.inventory import Inventory, needed
from barnabas_operator.observed.operator_metrics import OperatorMetrics
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.conditions import CLUSTER_NOT_FOUND, Refusal, time_text
from barnabas_operator.planning.object_names import CLUSTER_LABEL
from barnabas_operator.planning.rules_of_kinds import rules_of
from barnabas_operator.reconcile.cluster_worker import WITHOUT_CLUSTER, ClusterWorker
from barnabas_operator.reconcile.reconcile_parts import RetryingLoop
from barnabas_operator.reconcile.worker_environment import StatusWriter, WorkerEnvironment
from barnabas_operator.resources.cluster_kind import CLUSTER, KINDS
from barnabas_operator.resources.kind import Json, Key, key_of
from barnabas_operator.resources.schema_check import readable_part

CRON_JOB: Final = "CronJob"
STRAY_PAUSE_S: Final = 1.0
IDLE_S_MAX: Final = 600.0


class ClusterWorkers:
    """The workers of all Clusters.

    The watch calls `resource_event` and `object_event`. `begin` starts the workers of a namespace when all its
    resources are known.
    """

    def __init__(self, inventory: Inventory, environment: WorkerEnvironment, metrics: OperatorMetrics) -> None:
        self._inventory = inventory
        self._environment = environment
        self._metrics = metrics
        self._leadership = environment.leadership
        self._clock = environment.clock
        self._statuses = StatusWriter(environment.api, environment.clock)
        self._workers: dict[Key, tuple[ClusterWorker, asyncio.Task[None]]] = {}
        self._begun: set[str | None] = set()
        self._strays_changed = asyncio.Event()
        strays = RetryingLoop(
            "resources without a Cluster",
            self._wait_for_strays,
            self._report_strays,
            self._clock,
            STRAY_PAUSE_S,
            self._strays_were_reported,
        )
        self._strays_task = asyncio.create_task(strays.run())

    def begin(self, namespace: str | None) -> None:
        """Start the workers of the Clusters in a namespace, or of all Clusters if `namespace` is None.

        Call this method after the watch has listed the resources of the namespace.
        """
        self._begun.add(namespace)
        for key in self._inventory.clusters:
            self._open(key)
        self._strays_changed.set()

    def restart_all(self) -> None:
        """Restart every worker without its cached state, because this operator became or ceased to be the leader."""
        for key in list(self._workers):
            self._close(key)
        for key in self._inventory.clusters:
            self._open(key)
        self._strays_changed.set()

    async def close(self) -> None:
        """End every worker and the task that reports resources without a Cluster; wait until all have ended."""
        tasks = [self._strays_task, *(task for _, task in self._workers.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def state_of(self, key: Key) -> ClusterState | None:
        """Return the state that a Cluster's brokers last reported; None if no state is known."""
        worker, _ = self._workers.get(key, (None, None))
        return worker.state if worker is not None else None

    @property
    def why_dead(self) -> str | None:
        """Return a message about a worker that has ended or hangs; None if all workers are alive."""
        for key, (worker, task) in self._workers.items():
            whose = f"of the Cluster {key.namespace}/{key.name}"
            if task.done():
                return f"the worker {whose} has ended"
            for what, idle_s in worker.idle_s.items():
                if idle_s > IDLE_S_MAX:
                    idle = f"{idle_s:.0f} s, longer than {IDLE_S_MAX:.0f} s"
                    return f"the {what} {whose} has made no progress in its reconciliation for {idle}"
        return None

    def resource_event(self, body: Json, *, is_gone: bool) -> None:
        """Store a changed resource in the inventory, or remove a deleted resource; wake the worker of its Cluster.

        Changed statuses of some kinds wake no worker. The event of a Cluster also starts or ends the Cluster's worker.
        """
        if body["kind"] == CLUSTER.name:
            cluster: Key | None = self._cluster_event(body, is_gone=is_gone)
        else:
            known = self._inventory.of_kind(body["kind"]).get(key_of(body))
            self._inventory.keep(body, is_gone=is_gone)
            if known is not None and not is_gone and _is_own_work(known, body):
                return
            cluster = self._inventory.cluster_of(body)
        self._wake(cluster)
        self._strays_changed.set()

    def _cluster_event(self, body: Json, *, is_gone: bool) -> Key:
        """Store the Cluster and start its worker, or remove a deleted Cluster and end its worker; return the key."""
        key = key_of(body)
        self._inventory.keep(body, is_gone=is_gone)
        if is_gone:
            self._close(key)
        else:
            self._open(key)
        return key

    def object_event(self, body: Json, *, is_gone: bool) -> None:
        """Pass on a changed or deleted object of a Cluster, such as a pod, to the worker of the Cluster.

        A CronJob is also stored in the inventory, or removed from the inventory.
        """
        if body["kind"] == CRON_JOB:
            self._inventory.keep_cron_job(body, is_gone=is_gone)
        key = Key(body["metadata"]["namespace"], body["metadata"]["labels"][CLUSTER_LABEL])
        worker, _ = self._workers.get(key, (None, None))
        if worker is not None:
            worker.object_event(body, is_gone=is_gone)

    def _has_begun(self, namespace: str) -> bool:
        return not self._begun.isdisjoint((namespace, None))

    def _open(self, key: Key) -> None:
        if key not in self._workers and self._has_begun(key.namespace):
            on_round = partial(self._metrics.round_ended, key)
            worker = ClusterWorker(key, self._inventory, self._environment, on_round)
            self._workers[key] = worker, asyncio.create_task(worker.run())

    def _close(self, key: Key) -> None:
        _, task = self._workers.pop(key, (None, None))
        if task is not None:
            task.cancel()
            self._metrics.cluster_went(key)

    def _wake(self, key: Key | None) -> None:
        worker, _ = self._workers.get(key, (None, None)) if key is not None else (None, None)
        if worker is not None:
            worker.wake()

    async def _wait_for_strays(self, pause_s: float) -> None:
        await self._strays_changed.wait()
        # Wait before the Cluster is reported as missing, because it is often created right after its resources.
        await self._clock.sleep(pause_s or STRAY_PAUSE_S)
        self._strays_changed.clear()

    async def _report_strays(self) -> float:
        """Write CLUSTER_NOT_FOUND into the status of resources without a Cluster, or remove finalizers of deleted ones.

        For a ConsumerGroup, first scale up the workload that an offset reset scaled down.
        """
        if self._leadership.is_held:
            await asyncio.gather(*(self._report_stray(body) for body in self._strays_now()))
        return STRAY_PAUSE_S

    def _strays_were_reported(self, _took_s: float, all_were: bool) -> None:
        if not all_were:
            self._strays_changed.set()

    def _strays_now(self) -> list[Json]:
        strays = self._inventory.strays()
        return [body for body in strays if self._has_begun(body["metadata"]["namespace"])]

    async def _report_stray(self, body: Json) -> None:
        give_back = WITHOUT_CLUSTER.get(body["kind"])
        if give_back is not None:
            await give_back(self._environment.api, self._clock, body)
        if "deletionTimestamp" in body["metadata"]:
            await self._statuses.release(body)
            return
        resource = readable_part(KINDS[body["kind"]].resource, {**body, "spec": {}})
        why = Refusal(CLUSTER_NOT_FOUND, self._why_stray(body))
        waiting = rules_of(body["kind"]).without_cluster(resource, why, time_text(self._clock.now_ms()))
        await self._statuses.write([(waiting, body)])

    def _why_stray(self, body: Json) -> str:
        namespace = body["metadata"]["namespace"]
        there = sorted(key.name for key in self._inventory.clusters if key.namespace == namespace)
        named, has = body.get("spec", {}).get("cluster"), body.get("status", {}).get("cluster")
        if has is not None:
            kind = KINDS[body["kind"]]
            why = f"the {kind.thing} is in the Cluster {has}, but this Cluster does not exist"
            return f"{why}; create the Cluster {has}, or delete and create this {kind.name}"
        allowed = f"allowed: {', '.join(there)}" if there else f"there is no Cluster in the namespace {namespace} yet"
        return f"spec.cluster is {named or 'missing'}; {allowed}"


def _is_own_work(known: Json, body: Json) -> bool:
    """True if only the status has changed, and resources of this kind are not reconciled after a change of status."""
    return not KINDS[body["kind"]].status_is_news and _without_status(known) == _without_status(needed(body))


def _without_status(body: Json) -> Json:
    meta = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    return {**body, "metadata": meta, "status": None}
