"""Scales the Deployment or StatefulSet of a group's consumers according to the group's lag."""

import logging
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas_operator.kube.api import CONFLICT, KubeRefused
from barnabas_operator.kube.scales import Scales
from barnabas_operator.planning.groups.group_status import (
    RESETTING,
    WorkStatus,
    demand_of,
    follows_lag,
    not_scaled,
    scaled,
)
from barnabas_operator.planning.groups.observed_group import GroupSeen
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
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.groups.group_environment import GroupEnvironment
from barnabas_operator.reconcile.status_writer import EventWriter
from barnabas_operator.resources.consumer_group import ConsumerGroup, ScaleTarget, Scaling
from barnabas_operator.resources.object_meta import SCALING_ACTIVE, condition_of

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
        said = scaled(known.target, known.scale.replicas, decided)
        log.info("ConsumerGroup %s/%s: %s", group.metadata.namespace, group.metadata.name, said[2])
        await self._events.tell(kube_event(group, *said, self._stamp()))
        return known._replace(scale=after)

    def _stamp(self) -> str:
        return time_text(self._clock.now_ms())
