"""Reconciles a Cluster's Topics and writes their statuses."""

import dataclasses
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.cluster_state import (
    ClusterState,
    DesiredState,
    NamedRebalance,
    Trouble,
    named_rebalance,
    named_run,
)
from barnabas_operator.planning.conditions import KAFKA_ERROR, Refusal
from barnabas_operator.planning.object_names import kube_event
from barnabas_operator.planning.status.cluster_events import moves_begin
from barnabas_operator.planning.topics.reconcile_plan import WITH_CONFIGS, MovePlan, is_throttled, plan_reconcile
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    LogDirMove,
    MoveReplicas,
    TopicStep,
    describe,
    new_replicas,
    place_in_log_dirs,
)
from barnabas_operator.planning.topics.topic_plan import TopicPlan, claimed_name, drift_undone, topic_status
from barnabas_operator.reconcile.reconcile_parts import blocking
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    DirectReconciler,
    EventWriter,
    ReconcilerEnvironment,
    Seen,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.schema_check import readable_part
from barnabas_operator.resources.topic import Topic

log = logging.getLogger(__name__)

ORDER: Final = (CreateTopic, IncreasePartitions, AlterConfigs, MoveReplicas, DeleteTopic)


class Outcome(NamedTuple):
    """The outcome of a reconciliation of topics.

    `wanted` has the Topics with their new statuses. `done` are the changes that were made. `failed` are errors that
    belong to no Topic. `state` is the last observed state of the cluster. `ahead` has the moves of replicas.
    """

    wanted: DesiredState
    done: Sequence[TopicStep]
    failed: Sequence[str]
    state: ClusterState
    ahead: MovePlan


def reconcile_topics(admin: ClusterAdmin, wanted: DesiredState, now: str, seen: Seen) -> Outcome:
    """Reconcile topics once, from the state in `seen`. A broker's error is written into the status of the Topic.

    In the returned outcome, `wanted.removed` has only the deleted Topics whose topics could not be deleted in Kafka
    yet. Raises ClusterUnreachable.
    """
    state = _about(admin.with_overrides(seen.state, _names_with_configs(wanted, seen.state)), wanted, seen)
    plan = plan_reconcile(wanted, state)
    if plan.moves.needs_disks:
        state = dataclasses.replace(state, disks=admin.disks(state.racks))
        plan = plan_reconcile(wanted, state)
    plans, deletions = plan.topics, plan.deletions
    _choose_log_dirs(admin, wanted.cluster, plan.steps, state)
    done, refused = _apply(admin, plan.steps)
    problems = [each.refusal or _first_refusal(each, refused) for each in (*plans, *deletions)]
    if done:
        state = _about(admin.cluster_state(), wanted, seen)  # Configs are not read, because no status shows them.
    cluster = wanted.cluster.metadata.name
    topics = _with_status(plans, problems[: len(plans)], state, now, cluster)
    kept = _with_status(deletions, problems[len(plans) :], state, now, cluster)
    removed = tuple(topic for topic, problem in zip(kept, problems[len(plans) :], strict=True) if problem is not None)
    own = {step.topic for each in (*plans, *deletions) for step in each.steps}
    failed = [_failure(*refusal) for topic, refusal in refused.items() if topic not in own]
    failed += _move_between_log_dirs(admin, plan.moves.log_dir_moves)
    ahead = plan.moves._replace(refused=failed)
    return Outcome(DesiredState(wanted.cluster, topics, removed), done, failed, state, ahead)


def _names_with_configs(wanted: DesiredState, state: ClusterState) -> set[str]:
    """Return the names of the topics whose configs are read.

    If replication is throttled, the configs of all topics are read. Otherwise, only the configs of declared topics and
    of internal topics are read.
    """
    if is_throttled(wanted.cluster):
        return set(state.topics)
    return {*WITH_CONFIGS, *(topic.topic_name for topic in (*wanted.topics, *wanted.removed))}


def _about(state: ClusterState, wanted: DesiredState, seen: Seen) -> ClusterState:
    """Return `state` with the declared number of brokers, and the brokers that still have to restart or to register."""
    count = wanted.cluster.spec.brokers.replicas
    state = dataclasses.replace(state.with_brokers(count), restarting=frozenset(seen.restarting))
    return state if seen.informed is None else state.awaiting(count, seen.informed)


def _choose_log_dirs(admin: ClusterAdmin, cluster: Cluster, steps: Sequence[TopicStep], state: ClusterState) -> None:
    """Choose the log dirs of new replicas on brokers with several log dirs.

    A broker that cannot be reached chooses the log dirs of its new replicas itself.
    """
    if len(cluster.spec.storage.volumes) == 1:
        return
    found = {broker: each for broker, each in new_replicas(steps, state.topics).items() if broker in state.racks}
    disks = state.disks or admin.disks(found)
    for broker_id, replicas in found.items():
        try:
            if broker_id not in disks.log_dirs:
                raise ClusterUnreachable("it does not report its log dirs")
            admin.prefer_log_dirs(place_in_log_dirs(replicas, disks.loads(broker_id), cluster))
        except ClusterUnreachable as error:
            log.warning(
                "broker %d does not answer and will choose the log dirs of %d new replicas by itself: %s",
                broker_id,
                len(replicas),
                error,
            )


def _move_between_log_dirs(admin: ClusterAdmin, moves: Sequence[LogDirMove]) -> list[str]:
    for each in moves:
        log.info("%s", each)
    try:
        return admin.move_between_log_dirs(moves) if moves else []
    except ClusterUnreachable as error:
        return [f"could not {moves[0]}: {error}"]


def _apply(
    admin: ClusterAdmin, steps: Sequence[TopicStep]
) -> tuple[list[TopicStep], dict[str, tuple[TopicStep, StepRefused]]]:
    """Make the planned changes in the order of ORDER; return the changes that were made, and refused ones by topic."""
    done: list[TopicStep] = []
    refused: dict[str, tuple[TopicStep, StepRefused]] = {}
    for kind in ORDER:
        batch = [step for step in steps if isinstance(step, kind) and step.topic not in refused]
        refusals = admin.apply(batch)
        done += [step for step in batch if step.topic not in refusals]
        refused |= {step.topic: (step, refusals[step.topic]) for step in batch if step.topic in refusals}
    return done, refused


def _first_refusal(plan: TopicPlan, refused: Mapping[str, tuple[TopicStep, StepRefused]]) -> Refusal | None:
    mine = [refused[step.topic] for step in plan.steps if step.topic in refused]
    if not mine:
        return None
    return Refusal(KAFKA_ERROR, _failure(*mine[0]))


def _failure(step: TopicStep, error: StepRefused) -> str:
    return f"could not {describe(step)}: {error}"


def _with_status(
    plans: Iterable[TopicPlan], problems: Iterable[Refusal | None], state: ClusterState, now: str, cluster: str
) -> tuple[Topic, ...]:
    troubles = defaultdict[str, list[Trouble]](list)
    for trouble in state.troubles:
        troubles[trouble.topic].append(trouble)
    return tuple(
        _new_status(plan, problem, state, now, troubles[claimed_name(plan.resource)], cluster)
        for plan, problem in zip(plans, problems, strict=True)
    )


def _new_status(
    plan: TopicPlan, problem: Refusal | None, state: ClusterState, now: str, troubles: Sequence[Trouble], cluster: str
) -> Topic:
    topic = plan.resource
    found = state.topics.get(claimed_name(topic))
    return replace(topic, status=topic_status(topic, found, problem, now, troubles, plan.drift, cluster))


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
        await self._send_events(cluster, declared, outcome)
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

    async def _send_events(self, cluster: Cluster, declared: Iterable[Topic], outcome: Outcome) -> None:
        moves = moves_begin(cluster, outcome.done)
        if moves is not None:
            await self._events.send(kube_event(cluster, *moves, self._now()))
        by_name = {topic.topic_name: topic for topic in declared}
        for step in outcome.done:
            topic = by_name.get(step.topic)
            event = drift_undone(topic, step) if topic is not None else None
            if topic is not None and event is not None:
                await self._events.send(kube_event(topic, *event, self._now()))

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
