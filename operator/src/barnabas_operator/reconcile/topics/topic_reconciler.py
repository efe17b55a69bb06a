"""Reconciles a Cluster's Topics and writes their statuses."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.desired_state import DesiredState
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.rebalance_request import NamedRebalance, named_rebalance, named_run
from barnabas_operator.planning.refusal import INVALID_SPEC, Refusal
from barnabas_operator.planning.status.cluster_events import moves_begin
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.planning.topics.topic_events import drift_undone
from barnabas_operator.planning.topics.topic_steps import describe
from barnabas_operator.planning.waiting_resources import may_go, with_waiting
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.event_writer import EventWriter
from barnabas_operator.reconcile.finalizers import with_finalizers
from barnabas_operator.reconcile.kind_reconciler import Bodies, KindReconciler, ReconcilerEnvironment, Seen
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.topics.reconcile_topics import Outcome, reconcile_topics
from barnabas_operator.resources.api_objects import readable_part
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_job import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.topic import Topic

log = logging.getLogger(__name__)


class TopicReconciler(KindReconciler):
    """The reconciler of one Cluster's Topics."""

    def __init__(self, environment: ReconcilerEnvironment) -> None:
        self._clock = environment.worker_environment.clock
        self._statuses = environment.statuses
        self._events = EventWriter(environment.worker_environment.api)
        self._connected = environment.connected
        self._found = environment.found
        self._read = ParsedResources(Topic)

    async def release(self, bodies: Bodies) -> None:
        """Remove the finalizers of Topics that are no longer reconciled."""
        await asyncio.gather(*(self._statuses.release(body) for body in bodies.values()))

    async def wait(self, bodies: Bodies, why: str) -> None:
        """Remove the finalizers of deleted Topics whose deletion needs no broker.

        Write `why`, the reason why no Topic can be reconciled, into the status of all other Topics.
        """
        topics, now = await self._readable(bodies), self._now()
        going = {each.metadata.name for each in topics if each.metadata.deletion_timestamp is not None and may_go(each)}
        await self._write_statuses(
            (with_waiting(each, why, now) for each in topics if each.metadata.name not in going), bodies
        )
        await self.release({name: bodies[name] for name in going})

    async def reconcile(self, cluster: Cluster, bodies: Bodies, seen: Seen) -> Seen:
        """Reconcile the Topics once; also move replicas of topics without a Topic, and maintain internal topics."""
        topics = await self._readable(bodies)
        declared = [topic for topic in topics if topic.metadata.deletion_timestamp is None]
        ending = [topic for topic in topics if topic.metadata.deletion_timestamp is not None]
        declared = await with_finalizers(self._statuses, declared, bodies, _needs_finalizer, self._now())
        wanted = DesiredState(cluster, tuple(declared), tuple(ending), named=self._named(cluster))
        outcome = await self._steps(wanted, seen)
        await self._tell(cluster, declared, outcome)
        after = outcome.wanted
        await self._write_statuses((*after.topics, *after.removed), bodies)
        stays = {topic.metadata.name for topic in after.removed}
        leaving = (topic.metadata.name for topic in ending if topic.metadata.name not in stays)
        await self.release({name: bodies[name] for name in leaving})
        return seen._replace(state=outcome.state, ahead=outcome.ahead)

    def _named(self, cluster: Cluster) -> NamedRebalance | None:
        """Return the rebalance plan that an annotation of the Cluster names, if any."""
        name = named_run(cluster)
        if name is None:
            return None
        body = self._found(MAINTENANCE_JOB.name).get(name)
        return named_rebalance(name, readable_part(MaintenanceJob, body) if body is not None else None)

    async def _readable(self, bodies: Bodies) -> Sequence[Topic]:
        """Return the valid Topics; write the error into the status of invalid Topics."""
        topics, invalid = self._read.all(bodies.values())
        now = self._now()
        await self._write_statuses(
            (with_problem(topic, Refusal(INVALID_SPEC, why), now) for topic, why in invalid), bodies
        )
        return topics

    async def _tell(self, cluster: Cluster, declared: Iterable[Topic], outcome: Outcome) -> None:
        """Send Events about replica moves that have begun, and about changes of other clients that were reverted."""
        moves = moves_begin(cluster, outcome.done)
        if moves is not None:
            await self._events.tell(kube_event(cluster, *moves, self._now()))
        by_name = {topic.topic_name: topic for topic in declared}
        for step in outcome.done:
            topic = by_name.get(step.topic)
            said = drift_undone(topic, step) if topic is not None else None
            if topic is not None and said is not None:
                await self._events.tell(kube_event(topic, *said, self._now()))

    async def _steps(self, wanted: DesiredState, seen: Seen) -> Outcome:
        outcome = await blocking(lambda: reconcile_topics(self._connected(wanted.cluster), wanted, self._now(), seen))
        meta = wanted.cluster.metadata
        for line in (*map(describe, outcome.done), *outcome.failed):
            log.info("%s/%s: %s", meta.namespace, meta.name, line)
        return outcome

    def _now(self) -> str:
        return time_text(self._clock.now_ms())

    async def _write_statuses(self, topics: Iterable[Topic], bodies: Bodies) -> None:
        """Write the statuses that have changed."""
        resources = ((topic, bodies[topic.metadata.name]) for topic in topics)
        await self._statuses.write(
            (topic, body)
            for topic, body in resources
            if self._statuses.is_ahead(body) or topic.status != self._read.status_of(topic.metadata.name)
        )


def _needs_finalizer(topic: Topic) -> bool:
    return topic.spec.deletion_policy != "Retain"
