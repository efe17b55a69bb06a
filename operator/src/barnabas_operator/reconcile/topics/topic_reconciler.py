"""Reconciles a Cluster's Topics and writes their statuses."""

import logging
from collections.abc import Collection, Iterable

from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.rebalance_request import NamedRebalance, named_rebalance, named_run
from barnabas_operator.planning.status.cluster_events import moves_begin
from barnabas_operator.planning.topics.topic_events import drift_undone
from barnabas_operator.planning.topics.topic_steps import CreateTopic, describe
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.kind_reconciler import Bodies, DirectReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.status_writer import EventWriter
from barnabas_operator.reconcile.topics.reconcile_topics import Outcome, reconcile_topics
from barnabas_operator.resources.api_objects import readable_part
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.topic import Topic

log = logging.getLogger(__name__)


class TopicReconciler(DirectReconciler[Topic]):
    """The reconciler of one Cluster's Topics."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        super().__init__(environment, Topic)
        self._events = EventWriter(environment.worker_environment.api)
        self._found = environment.found

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the Topics once; also move replicas of topics without a Topic, and maintain internal topics."""
        declared, ending = await self._readable(bodies)
        declared = await self._with_finalizers(declared, bodies)
        wanted = DesiredState(cluster, tuple(declared), tuple(ending), named=self._named(cluster))
        outcome = await self._steps(wanted, seen)
        await self._tell(cluster, declared, outcome)
        after = outcome.wanted
        await self._take_back(outcome, await self._write_statuses((*after.topics, *after.removed), bodies))
        await self._release_others(ending, after.removed, bodies)
        return seen._replace(state=outcome.state, ahead=outcome.ahead)

    def _named(self, cluster: Cluster) -> NamedRebalance | None:
        name = named_run(cluster)
        if name is None:
            return None
        body = self._found(MAINTENANCE_JOB.name).get(name)
        return named_rebalance(name, readable_part(MaintenanceJob, body) if body is not None else None)

    async def _tell(self, cluster: Cluster, declared: Iterable[Topic], outcome: Outcome) -> None:
        moves = moves_begin(cluster, outcome.done)
        if moves is not None:
            await self._events.tell(kube_event(cluster, *moves, self._now()))
        by_name = {topic.topic_name: topic for topic in declared}
        for step in outcome.done:
            topic = by_name.get(step.topic)
            said = drift_undone(topic, step) if topic is not None else None
            if topic is not None and said is not None:
                await self._events.tell(kube_event(topic, *said, self._now()))

    async def _take_back(self, outcome: Outcome, gone: Collection[Topic]) -> None:
        """Delete topics that were created for a resource whose deletion another operator has carried out."""
        made = {step.topic for step in outcome.done if isinstance(step, CreateTopic)}
        late = tuple(topic for topic in gone if topic.topic_name in made)
        if late:
            stay = tuple(topic for topic in outcome.wanted.topics if topic not in late)
            await self._steps(DesiredState(outcome.wanted.cluster, stay, late), Seen(outcome.state))

    async def _steps(self, wanted: DesiredState, seen: Seen) -> Outcome:
        outcome = await blocking(lambda: reconcile_topics(self._connected(wanted.cluster), wanted, self._now(), seen))
        meta = wanted.cluster.metadata
        for line in (*map(describe, outcome.done), *outcome.failed):
            log.info("%s/%s: %s", meta.namespace, meta.name, line)
        return outcome
