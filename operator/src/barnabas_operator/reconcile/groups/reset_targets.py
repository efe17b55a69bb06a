"""Reads, scales down and restores the target workloads of offset resets, without requests to brokers."""

import logging
from typing import Final

from barnabas_core.clock import Clock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused
from barnabas_operator.kube.scales import Scales
from barnabas_operator.planning.groups.group_status import SCALED, may_hold_target
from barnabas_operator.planning.groups.observed_group import GroupDescription
from barnabas_operator.planning.groups.reset_step import Remember, ResetLook, Scale, Stop, next_step
from barnabas_operator.planning.groups.scaling import TargetScale, named
from barnabas_operator.planning.kube_event import kube_event
from barnabas_operator.planning.refusal import KUBERNETES_ERROR, Refusal
from barnabas_operator.planning.time_text import time_text, utc_moment
from barnabas_operator.reconcile.status_writer import EventWriter
from barnabas_operator.resources.api_objects import readable_part
from barnabas_operator.resources.consumer_group import ConsumerGroup, Reset
from barnabas_operator.resources.json_types import Json

log = logging.getLogger(__name__)

STEPS_MAX: Final = 12
"""The maximum number of steps in one reconciliation. More are needed only while other clients change the target."""
CHANGES: Final = Refusal(KUBERNETES_ERROR, "other clients keep changing the workload that is spec.scaling.target")


class ResetTargets:
    """The workloads in one namespace that offset resets scale.

    Every method may raise KubeUnreachable. `look` may also raise KubeRefused.
    """

    def __init__(self, api: KubeApi, namespace: str, clock: Clock) -> None:
        self._scales = Scales(api, namespace)
        self._events = EventWriter(api)
        self._clock = clock

    async def look(
        self,
        group: ConsumerGroup,
        reset: Reset | None,
        done_at: str | None,
        described: GroupDescription,
        *,
        is_on_hold: bool = False,
    ) -> ResetLook:
        """Return the state of the reset, with the replicas of the workload that `spec.scaling.target` names."""
        target = group.spec.scaling.target if group.spec.scaling is not None else None
        scale = await self._scales.read(target) if target is not None else None
        now = utc_moment(self._clock.now_ms())
        name, group_id = group.metadata.name, group.group_id
        return ResetLook(name, group_id, reset, done_at, described, target, scale, now, is_on_hold)

    async def take(self, group: ConsumerGroup, look: ResetLook, step: Remember | Scale) -> Stop | None:
        """Scale or annotate the target workload; return why the reset has to stop, or None.

        None means that this method or another client has changed the workload; the caller must read the workload again.
        """
        target, seen = look.target, look.scale
        assert target is not None
        assert isinstance(seen, TargetScale)
        try:
            if isinstance(step, Scale):
                after = await self._scales.scale(target, seen, step.replicas)
            else:
                after = await self._scales.remember(target, seen, step.before)
        except KubeRefused as error:
            refused = Refusal(KUBERNETES_ERROR, f"{named(target)}: {error.message}")
            return None if error.status == CONFLICT else Stop(refused)
        if isinstance(after, Refusal):
            return Stop(after)
        log.info(
            "ConsumerGroup %s/%s: changed %s for the offset reset: %s",
            group.metadata.namespace,
            group.metadata.name,
            named(target),
            step,
        )
        if isinstance(step, Scale):
            said = f"scaled {named(target)} from {seen.replicas} to {step.replicas} for a reset of the group's offsets"
            await self._events.tell(kube_event(group, "Normal", SCALED, said, time_text(self._clock.now_ms())))
        return None

    async def give_back(self, group: ConsumerGroup, reset: Reset | None) -> Refusal | None:
        """Scale up the workload that a reset of this ConsumerGroup scaled down; return why this failed, or None.

        `reset` is the declared reset, which will begin again when the ConsumerGroup is reconciled again. `reset` is
        None if no reset is declared, or if the ConsumerGroup is being deleted.
        """
        try:
            return await self._given_back(group, reset)
        except KubeRefused as error:
            return Refusal(KUBERNETES_ERROR, f"spec.scaling.target: {error.message}")

    async def _given_back(self, group: ConsumerGroup, reset: Reset | None) -> Refusal | None:
        for _ in range(STEPS_MAX):
            look = await self.look(group, reset, None, GroupDescription(), is_on_hold=True)
            step = next_step(look)
            if not isinstance(step, Remember | Scale):
                return None
            stopped = await self.take(group, look, step)
            if stopped is not None:
                return stopped.why
        return CHANGES


async def give_back_target(api: KubeApi, clock: Clock, body: Json) -> None:
    """Scale up the workload that a reset scaled down for a ConsumerGroup that is no longer reconciled.

    If the workload cannot be scaled up, the reason is only logged, so that a namespace can be deleted nevertheless.
    Raises KubeUnreachable.
    """
    group = readable_part(ConsumerGroup, body)
    goes = group.metadata.deletion_timestamp is not None
    if group.spec.scaling is None or not (goes or may_hold_target(group)):
        return
    namespace = group.metadata.namespace or "default"
    refusal = await ResetTargets(api, namespace, clock).give_back(group, None if goes else group.spec.offsets.reset)
    if refusal is not None:
        log.warning("ConsumerGroup %s/%s: %s", namespace, group.metadata.name, refusal.message)
