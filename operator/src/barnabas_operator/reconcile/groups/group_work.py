"""Reconciles a ConsumerGroup after it was read: resets offsets, scales, checks the lag objective, makes the status."""

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from msgspec.structs import replace as replaced

from barnabas_core.config.group_configs import GROUP_CONFIGS
from barnabas_kafka.asking import SHARE
from barnabas_kafka.connection import REQUEST_TIMEOUT_S, ClusterUnreachable, reachable
from barnabas_operator.kafka.step_requests import alter_configs, dead_letter_topic, overrides
from barnabas_operator.kube.api import CONFLICT, KubeRefused, KubeUnreachable, Scales
from barnabas_operator.leader_election import NotLeading
from barnabas_operator.planning.cluster_state import config_changes
from barnabas_operator.planning.conditions import INVALID_CONFIG, KUBERNETES_ERROR, PAUSE, Refusal, time_text
from barnabas_operator.planning.groups.group_status import (
    RESETTING,
    WorkStatus,
    dead_letters_enabled,
    demand_of,
    follows_lag,
    group_status,
    not_scaled,
    scaled,
)
from barnabas_operator.planning.groups.reset_plan import GroupSeen, Judged, judged, missed_since_s, misses
from barnabas_operator.planning.groups.reset_step import (
    DEAD_LETTER_TOPIC,
    DeadLetterTopic,
    is_claimed,
    refuse_dead_letters,
    refuse_group,
)
from barnabas_operator.planning.groups.scaling import (
    Decision,
    Demand,
    Memory,
    Scalers,
    TargetScale,
    decide,
    named,
    refuse_scaling,
)
from barnabas_operator.planning.object_names import kube_event
from barnabas_operator.planning.topics.topic_plan import deletion_protected
from barnabas_operator.reconcile.groups.offset_resets import GroupEnvironment, OffsetResets
from barnabas_operator.reconcile.reconcile_parts import blocking, is_expected, refusal_of
from barnabas_operator.reconcile.worker_environment import EventWriter
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup, ScaleTarget, Scaling
from barnabas_operator.resources.kind import OFFSETS_RESET, SCALING_ACTIVE, WITHIN_OBJECTIVE, condition_of
from barnabas_operator.resources.topic import ConfigValue

log = logging.getLogger(__name__)

READ_EVERY_S: Final = 60.0
"""The interval at which a target workload is read again, to notice changes by other clients."""


class _Known(NamedTuple):
    target: ScaleTarget
    scale: TargetScale
    read_s: float
    memory: Memory | None = None

    def is_fresh(self, scaling: Scaling, now_s: float) -> bool:
        """True if the scale was read from the declared target workload, less than READ_EVERY_S ago."""
        return self.target == scaling.target and now_s - self.read_s < READ_EVERY_S

    def decide(self, scaling: Scaling, demand: Demand, now_s: float) -> Decision:
        """Return how many replicas the target workload must have, and why if the number must change."""
        return decide(scaling, demand, self.scale.replicas, self.memory, now_s)


class LagScaling:
    """The reconciler of `spec.scaling` for the groups of one Cluster."""

    def __init__(self, environment: GroupEnvironment) -> None:
        self._clock = environment.clock
        self._scales = Scales(environment.api, environment.namespace)
        self._events = EventWriter(environment.api)
        self._known: dict[str, _Known] = {}
        """The last known scale of each target, by uid of the ConsumerGroup."""
        self._scalers = Scalers([], [])
        self._scalers_read_s: float | None = None

    async def act(self, group: ConsumerGroup, seen: GroupSeen, work: WorkStatus) -> WorkStatus:
        """Scale the target workload if the lag requires another number of replicas, and no reset is in progress.

        Returns `work`, the result of the reset, with the condition about the scaling added.
        """
        uid, scaling = group.metadata.uid or "", group.spec.scaling
        if scaling is None or scaling.lag_threshold is None:
            self._known.pop(uid, None)
            return work
        if work.is_resetting:
            self._known.pop(uid, None)
            return work.with_condition(not_scaled(group, RESETTING, self._stamp()))
        try:
            done = await self._follow(group, uid, scaling, seen)
        except KubeRefused as error:
            if error.status == CONFLICT:  # Another client has just changed the target workload.
                known = condition_of(group.conditions, SCALING_ACTIVE)
                return replace(work if known is None else work.with_condition(known), is_busy=True)
            done = Refusal(KUBERNETES_ERROR, f"{named(scaling.target)}: {error.message}")
        if isinstance(done, Refusal):
            self._known.pop(uid, None)
            return work.with_condition(not_scaled(group, done, self._stamp()))
        return replace(work.with_condition(follows_lag(group, seen, done, self._stamp())), replicas=done.replicas)

    def forget(self, group: ConsumerGroup) -> None:
        """Drop the cached scale of the target workload, without changing the workload."""
        self._known.pop(group.metadata.uid or "", None)

    async def _follow(self, group: ConsumerGroup, uid: str, scaling: Scaling, seen: GroupSeen) -> Decision | Refusal:
        now_s, demand = self._clock.monotonic_s(), demand_of(seen)
        known = self._known.get(uid)
        found: _Known | Refusal
        if known is not None and known.is_fresh(scaling, now_s) and not known.decide(scaling, demand, now_s).is_change:
            found = known
        else:
            found = await self._read(group, scaling, known, now_s)
        if isinstance(found, Refusal):
            return found
        decided = found.decide(scaling, demand, now_s)
        found = await self._scaled(group, found, decided) if decided.is_change else found
        if isinstance(found, Refusal):
            return found
        self._known[uid] = found._replace(memory=decided.memory)
        return decided

    async def _read(
        self, group: ConsumerGroup, scaling: Scaling, known: _Known | None, now_s: float
    ) -> _Known | Refusal:
        scale = await self._scales.read(scaling.target)
        if isinstance(scale, Refusal):
            return scale
        refusal = refuse_scaling(group, scaling, scale, await self._who_scales(now_s))
        if refusal is not None:
            return refusal
        memory = known.memory if known is not None and known.target == scaling.target else None
        return _Known(scaling.target, scale, now_s, memory)

    async def _who_scales(self, now_s: float) -> Scalers:
        if self._scalers_read_s is None or now_s - self._scalers_read_s >= READ_EVERY_S:
            self._scalers = await self._scales.scalers()
            self._scalers_read_s = now_s
            there = {each["metadata"]["uid"] for each in self._scalers.groups}
            self._known = {uid: known for uid, known in self._known.items() if uid in there}
        return self._scalers

    async def _scaled(self, group: ConsumerGroup, known: _Known, decided: Decision) -> _Known | Refusal:
        after = await self._scales.scale(known.target, known.scale, decided.replicas)
        if isinstance(after, Refusal):
            return after
        event = scaled(known.target, known.scale.replicas, decided)
        log.info("ConsumerGroup %s/%s: %s", group.metadata.namespace, group.metadata.name, event[2])
        await self._events.send(kube_event(group, *event, self._stamp()))
        return known._replace(scale=after)

    def _stamp(self) -> str:
        return time_text(self._clock.now_ms())


class _Configs(NamedTuple):
    generation: int | None
    read_s: float
    refusal: Refusal | None
    dead_letters: DeadLetterTopic | None


class GroupConfigs:
    """The reconciler of `spec.config`, and the observer of topics for dead letters, for the groups of one Cluster."""

    def __init__(self, environment: GroupEnvironment) -> None:
        self._environment = environment
        self._known: dict[str, _Configs] = {}
        """The configs that were right when they were read, by name of the resource."""

    async def act(self, group: ConsumerGroup, seen: GroupSeen) -> WorkStatus:
        """Give the group its declared configs; return why the brokers refuse them, and the condition of dead letters.

        The configs are read after a change of the resource, every READ_EVERY_S, and at each look while something is
        wrong. Raises ClusterUnreachable.
        """
        is_share = SHARE in (group.spec.type, seen.group_type)
        if group.spec.config is None and not is_share:
            return WorkStatus()
        name, now_s = group.metadata.name, self._environment.clock.monotonic_s()
        found = self._known.pop(name, None)
        if found is None or found.generation != group.metadata.generation or now_s - found.read_s >= READ_EVERY_S:
            found = _Configs(
                group.metadata.generation, now_s, *await blocking(self._apply, group.group_id, group.spec.config)
            )
        letters = found.dead_letters if is_share else None
        sources = seen.lags.topics.keys() | (seen.topics_read or ())
        why = None if letters is None else refuse_dead_letters(letters, sources)
        if found.refusal is None and why is None:
            self._known[name] = found
        work = WorkStatus(problem=found.refusal)
        now = time_text(self._environment.clock.now_ms())
        return work if letters is None else work.with_condition(dead_letters_enabled(group, why, now))

    def forget(self, there: Collection[str]) -> None:
        """Remove the data about ConsumerGroups that no longer exist; `there` are the names of those that exist."""
        self._known = {name: found for name, found in self._known.items() if name in there}

    def _apply(
        self, group_id: str, config: Mapping[str, ConfigValue] | None
    ) -> tuple[Refusal | None, DeadLetterTopic | None]:
        """Change what differs; return why that is refused, and the topic for dead letters. Call this in a thread."""
        client = self._environment.client()
        with reachable():
            found = overrides(client, [group_id], "group").get(group_id, {})
        changes = config_changes(config, found, GROUP_CONFIGS) if config is not None else {}
        refused = self._alter(client, group_id, changes) if changes else None
        topic = found.get(DEAD_LETTER_TOPIC) if refused is not None else {**found, **changes}.get(DEAD_LETTER_TOPIC)
        if not topic:
            return refused, None
        with reachable():
            return refused, dead_letter_topic(client, topic)

    def _alter(self, client: Any, group_id: str, changes: Mapping[str, str | None]) -> Refusal | None:
        with self._environment.writing(REQUEST_TIMEOUT_S), reachable():
            refused = dict(alter_configs(client, "group", {group_id: changes}))[group_id]
        log.info("group %s: changed configs: %s: %s", group_id, changes, refused or "done")
        return None if refused is None else Refusal(INVALID_CONFIG, f"spec.config: {refused}")


AT_ONCE_MAX: Final = 16


class Worked(NamedTuple):
    """The outcome of the reconciliation of a group."""

    group: ConsumerGroup
    """The group with its new status."""
    is_busy: bool
    """True if the group must be reconciled again soon."""


class GroupWork:
    """The reconciler of the groups of one Cluster."""

    def __init__(self, environment: GroupEnvironment) -> None:
        self._resets: Final = OffsetResets(environment)
        self._scaling: Final = LagScaling(environment)
        self._configs: Final = GroupConfigs(environment)
        self._clock: Final = environment.clock
        self._missed_since_s: dict[str, float] = {}
        """The monotonic time since which each group has missed its objective, by name of the resource."""
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self.acted_at = 0.0
        """The monotonic time at which an offset reset or a scaling step last ended."""

    async def bring(
        self, cluster: Cluster, group: ConsumerGroup, owner: ConsumerGroup, seen: GroupSeen
    ) -> Worked | None:
        """Reconcile a group once; return None if the brokers or the API server did not answer. Raises NotLeading."""
        problem = refuse_group(group, owner, seen)
        try:
            if problem is None and not group.is_paused:
                async with self._turns:
                    work = await self._acted(group, seen)
            else:
                work = replace(
                    await self.hold(group, problem.message if problem is not None else PAUSE), problem=problem
                )
        except (ClusterUnreachable, KubeUnreachable) as error:
            log.info("%s: the reconciliation failed and will be tried again: %s", _name(group), error)
            return None
        objective = self._judged(group, seen)
        status = group_status(group, seen, work, objective, cluster.metadata.name, time_text(self._clock.now_ms()))
        return Worked(replaced(group, status=status), work.is_busy)

    async def hold(self, group: ConsumerGroup, why: str) -> WorkStatus:
        """Undo temporary changes of a group that is not reconciled because of `why`; return the conditions about them.

        Raises NotLeading and KubeUnreachable.
        """
        self._scaling.forget(group)
        async with self._turns:
            work = await self._resets.hold(group, why)
            self.acted_at = self._clock.monotonic_s()
        return work

    async def end(self, group: ConsumerGroup, owned: Collection[str]) -> Refusal | None:
        """Carry out the deletion policy; return why the deletion has to wait, or None.

        Nothing is deleted if another resource owns the group. Raises NotLeading, ClusterUnreachable, KubeUnreachable
        and KubeRefused.
        """
        refusal = await self.clean_up(group)
        if refusal is not None or group.is_paused or not is_claimed(group) or group.group_id in owned:
            return refusal
        if group.spec.deletion_policy == "Protect":
            return deletion_protected(f"Group {group.group_id}", "Retain, DeleteOffsets or DeleteGroup")
        async with self._turns:
            refusal = await self._resets.end(group)
            self.acted_at = self._clock.monotonic_s()
        return refusal

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Undo temporary changes before a ConsumerGroup is deleted; return why the deletion has to wait, or None.

        Raises NotLeading, KubeUnreachable and KubeRefused.
        """
        self._scaling.forget(group)
        async with self._turns:
            refusal = await self._resets.clean_up(group)
            self.acted_at = self._clock.monotonic_s()
        return refusal

    def forget(self, there: Collection[str]) -> None:
        """Remove the data about ConsumerGroups that no longer exist; `there` are the names of those that exist."""
        self._missed_since_s = {name: at for name, at in self._missed_since_s.items() if name in there}
        self._configs.forget(there)

    async def _acted(self, group: ConsumerGroup, seen: GroupSeen) -> WorkStatus:
        try:
            configured = await self._configs.act(group, seen)
            work = await self._resets.act(group)
            work = replace(work, problem=configured.problem, conditions=(*work.conditions, *configured.conditions))
            self.acted_at = self._clock.monotonic_s()
            work = await self._scaling.act(group, seen, work)
        except (NotLeading, ClusterUnreachable, KubeUnreachable):
            raise
        except Exception as error:  # An error in one group must not stop the other groups.
            log.warning("%s: %s", _name(group), error, exc_info=not is_expected(error))
            # The condition OffsetsReset is reported unchanged, because a reset may be in progress.
            known = condition_of(group.conditions, OFFSETS_RESET)
            return WorkStatus(problem=refusal_of(error), conditions=(known,) if known is not None else ())
        self.acted_at = self._clock.monotonic_s()
        return work

    def _judged(self, group: ConsumerGroup, seen: GroupSeen) -> Judged | None:
        objective, name = group.spec.lag_objective, group.metadata.name
        missed = misses(objective, seen.counted) if objective is not None else ()
        now_s = self._clock.monotonic_s()
        since = missed_since_s(self._missed_since_s.pop(name, None), missed, now_s)
        if since is not None:
            self._missed_since_s[name] = since
        if objective is None:
            return None
        reported = condition_of(group.conditions, WITHIN_OBJECTIVE)
        was_missed = reported is not None and reported.status == "False"
        return judged(objective, seen, missed, now_s - (now_s if since is None else since), was_missed=was_missed)


def _name(group: ConsumerGroup) -> str:
    return f"ConsumerGroup {group.metadata.namespace}/{group.metadata.name}"
