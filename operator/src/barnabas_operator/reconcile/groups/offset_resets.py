"""Carries out offset resets, and deletes the group or its offsets if the ConsumerGroup is deleted and declares so."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_core.group_lag import reset_mark
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.kafka.group_admin import GroupAdmin, Refused, plan_now, plan_of, reset_descriptions
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, Scales
from barnabas_operator.planning.conditions import KAFKA_ERROR, KUBERNETES_ERROR, Refusal, time_text, utc_moment
from barnabas_operator.planning.groups.group_status import (
    ASKS_BROKERS,
    SCALED,
    DeleteGroup,
    WorkStatus,
    deletion_step,
    final_condition,
    is_unfinished,
    known_reset,
    may_hold_target,
    on_hold,
    reset_begun,
    reset_done,
    reset_planned,
    reset_refused,
    still_active,
)
from barnabas_operator.planning.groups.reset_plan import Committed, GroupDescription, ResetPlan, refuse_size
from barnabas_operator.planning.groups.reset_step import (
    Begin,
    Commit,
    Done,
    Over,
    Plan,
    Remember,
    ResetState,
    Scale,
    Stop,
    next_step,
    resets_of,
    share_epoch,
    without_plan,
)
from barnabas_operator.planning.groups.scaling import TargetScale, named
from barnabas_operator.planning.object_names import kube_event
from barnabas_operator.reconcile.reconcile_parts import blocking
from barnabas_operator.reconcile.worker_environment import EventWriter
from barnabas_operator.resources.consumer_group import ConsumerGroup, Reset, ResetStatus
from barnabas_operator.resources.kind import OFFSETS_RESET, Json, condition_of
from barnabas_operator.resources.schema_check import readable_part


class GroupEnvironment(NamedTuple):
    """The clients and the clock with which offset resets and scaling work in one Cluster.

    `client` connects to the brokers; it must be called in a thread. Each request that changes something must run in the
    context manager that `writing(seconds)` returns; `seconds` is the time limit of the request.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock


log = logging.getLogger(__name__)

STEPS_MAX: Final = 12
"""The maximum number of steps in one reconciliation. More are needed only while other clients change the target."""
CHANGES: Final = Refusal(KUBERNETES_ERROR, "other clients keep changing the workload that is spec.scaling.target")


class ResetTargets:
    """The workloads in one namespace that offset resets scale.

    Every method may raise KubeUnreachable. `read` may also raise KubeRefused.
    """

    def __init__(self, api: KubeApi, namespace: str, clock: Clock) -> None:
        self._scales = Scales(api, namespace)
        self._events = EventWriter(api)
        self._clock = clock

    async def read(
        self,
        group: ConsumerGroup,
        reset: Reset | None,
        known: ResetStatus | None,
        described: GroupDescription,
        *,
        is_on_hold: bool = False,
    ) -> ResetState:
        """Return the state of the reset, with the replicas of the workload that `spec.scaling.target` names."""
        target = group.spec.scaling.target if group.spec.scaling is not None else None
        scale = await self._scales.read(target) if target is not None else None
        now = utc_moment(self._clock.now_ms())
        name, group_id = group.metadata.name, group.group_id
        done_at, begun = (known.done_at, known.group_epoch) if known is not None else (None, None)
        is_share = group.spec.type == "share"
        return ResetState(name, group_id, reset, done_at, described, target, scale, now, is_on_hold, is_share, begun)

    async def take(self, group: ConsumerGroup, state: ResetState, step: Remember | Scale) -> Stop | None:
        """Scale or annotate the target workload; return why the reset has to stop, or None.

        None means that this method or another client has changed the workload; the caller must read the workload again.
        """
        target, seen = state.target, state.scale
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
            message = (
                f"scaled {named(target)} from {seen.replicas} to {step.replicas} for a reset of the group's offsets"
            )
            await self._events.send(kube_event(group, "Normal", SCALED, message, time_text(self._clock.now_ms())))
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
            state = await self.read(group, reset, None, GroupDescription(), is_on_hold=True)
            step = next_step(state)
            if not isinstance(step, Remember | Scale):
                return None
            stopped = await self.take(group, state, step)
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


class OffsetResets:
    """The reconciler of offset resets and deletion policies for the groups of one Cluster."""

    def __init__(self, environment: GroupEnvironment) -> None:
        self._environment = environment
        self._targets = ResetTargets(environment.api, environment.namespace, environment.clock)

    async def act(self, group: ConsumerGroup) -> WorkStatus:
        """Take the next steps of the reset, until a step has to wait or the reset has ended."""
        stays = final_condition(group)
        if stays is not None:
            return WorkStatus(conditions=(stays,))
        if group.spec.offsets.reset is None and not is_unfinished(group):
            return WorkStatus()
        known = known_reset(group)
        for _ in range(STEPS_MAX):
            state = await self._read_state(group, group.spec.offsets.reset, known)
            step = next_step(state)
            if isinstance(step, Plan):
                return await self._dry_run(group, state)
            if isinstance(step, Begin):
                return reset_begun(group, step.epoch, self._stamp(), holds_target=state.holds_target)
            end: Over | Done | Stop | None
            if isinstance(step, Commit):
                done, end = await self._commit(group, state)
                known = done or known
            elif isinstance(step, Remember | Scale):
                end = await self._scale(group, state, step)
            else:
                end = step
            if end is not None:
                return self._status_after(group, state, end, known)
        return reset_refused(group, CHANGES, self._stamp(), holds_target=True)

    async def end(self, group: ConsumerGroup) -> Refusal | None:
        """Delete the group or the committed offsets, if the deletion policy says so.

        Return why the deletion has to wait, or None if nothing remains to be deleted.
        """
        if group.spec.deletion_policy not in ASKS_BROKERS:
            return None
        refusal, refused = await blocking(self._delete_now, group)
        if refused is None:
            return refusal
        return still_active(group, "members") if refused.has_members else Refusal(KAFKA_ERROR, str(refused))

    async def _read_state(self, group: ConsumerGroup, reset: Reset | None, known: ResetStatus | None) -> ResetState:
        """Return the state of the reset, of the group, and of the workload that `spec.scaling.target` names."""
        described = GroupDescription()
        if reset is not None and (known is None or known.done_at is None):
            described = await blocking(lambda: self._admin().describe([group.group_id]).groups[group.group_id])
        return await self._targets.read(group, reset, known, described)

    async def _dry_run(self, group: ConsumerGroup, state: ResetState) -> WorkStatus:
        plan = await self._plan(state)
        if isinstance(plan, Refusal):
            return reset_refused(group, plan, self._stamp(), holds_target=False)
        return reset_planned(group, plan, self._stamp())

    async def _plan(self, state: ResetState) -> ResetPlan | Refusal:
        reset = state.reset
        assert reset is not None
        return await blocking(lambda: plan_now(self._admin(), reset, state.group_id, state.now))

    async def _commit(self, group: ConsumerGroup, state: ResetState) -> tuple[ResetStatus | None, Stop | None]:
        """Commit the offsets of the reset; return the reset's new status, and the reason of a refusal or None.

        Return None and None if the group or the target workload has changed; the caller must then read both again.
        After a refusal of the brokers the reset of a share group begins again, because some offsets may be altered.
        """
        reset = state.reset
        assert reset is not None
        plan, refused = await blocking(self._commit_now, state, reset)
        if plan is None:
            return None, None
        if isinstance(plan, Refusal):
            return None, await self._without_plan(group, state, plan)
        if refused is None:
            self._log(group, f"the reset {reset.id} has been carried out: {plan}")
            return plan.status(reset.id, self._stamp()), None
        self._log(group, f"the brokers refused the reset {reset.id}: {refused}")
        if refused.has_members:
            return None, None
        begins_again = ResetStatus(id=reset.id) if state.begun_epoch is not None else None
        return begins_again, await self._without_plan(group, state, Refusal(KAFKA_ERROR, str(refused)))

    async def _without_plan(self, group: ConsumerGroup, state: ResetState, why: Refusal) -> Stop | None:
        step = without_plan(state, why)
        return await self._scale(group, state, step) if isinstance(step, Remember) else step

    def _commit_now(self, state: ResetState, reset: Reset) -> tuple[ResetPlan | Refusal | None, Refused | None]:
        """Plan and commit the reset; return the plan and the brokers' refusal. Call this method in a thread.

        The plan is None if an earlier commit, whose response was lost, has already carried out the reset.
        """
        admin = self._admin()
        described = reset_descriptions(admin, reset, state.group_id)
        group = described.groups[state.group_id]
        done, epoch = resets_of(group), share_epoch(group, is_declared=state.is_declared_share)
        if reset.id in done or (not group.problem and epoch != state.begun_epoch):
            return None, None
        mark = reset_mark(reset.id, done)
        plan = plan_of(admin, reset, state.group_id, described, state.now)
        if isinstance(plan, Refusal):
            return plan, None
        too_large = refuse_size(plan, state.group_id, mark)
        if too_large is not None:
            return too_large, None
        if epoch is not None:
            return plan, admin.alter_start_offsets(state.group_id, {each.partition: each.to for each in plan.moves})
        offsets = {each.partition: Committed(each.to, metadata=mark) for each in plan.moves}
        return plan, admin.commit(state.group_id, offsets)

    async def _scale(self, group: ConsumerGroup, state: ResetState, step: Remember | Scale) -> Stop | None:
        """Scale or annotate the target workload; return why the reset has to stop, or None if it can go on.

        The workload is not annotated if the reset would be refused.
        """
        in_vain = await self._refusal_before(state, step) if isinstance(step, Remember) else None
        return Stop(in_vain) if in_vain is not None else await self._targets.take(group, state, step)

    async def _refusal_before(self, state: ResetState, step: Remember) -> Refusal | None:
        """Check, before the target is scaled down, whether the reset would be refused; return the reason, or None."""
        if step.before is None or step.before.gave_up:
            return None
        plan = await self._plan(state)
        return plan if isinstance(plan, Refusal) else None

    async def hold(self, group: ConsumerGroup, why: str) -> WorkStatus:
        """Scale up the workload that an unfinished reset has scaled down, because of `why` the group is not reconciled.

        Sends no request to brokers. The next reconciliation of the group begins the reset again.
        """
        reset = condition_of(group.conditions, OFFSETS_RESET)
        if may_hold_target(group):
            refusal = await self._targets.give_back(group, group.spec.offsets.reset)
            reset = on_hold(group, refusal, why, self._stamp())
        return WorkStatus(conditions=(reset,) if reset is not None else ())

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Scale up the workload that a reset of this group scaled down; return why this failed, or None."""
        return await self._targets.give_back(group, None)

    def _delete_now(self, group: ConsumerGroup) -> tuple[Refusal | None, Refused | None]:
        """Delete the group or its offsets; return why the deletion must wait, or None, and the brokers' error, or None.

        Call this method in a thread.
        """
        admin = self._admin()
        described = admin.describe([group.group_id]).groups[group.group_id]
        step = deletion_step(group, described)
        if step is None or isinstance(step, Refusal):
            return step, None
        if isinstance(step, DeleteGroup):
            refused = admin.delete(group.group_id)
        elif described.share_epoch is not None:
            refused = admin.delete_start_offsets(group.group_id, {each.topic for each in step.partitions})
        else:
            refused = admin.delete_offsets(group.group_id, step.partitions)
        self._log(
            group,
            f"carrying out deletionPolicy {type(step).__name__} for the group {group.group_id}: {refused or 'done'}",
        )
        return None, refused

    def _status_after(
        self,
        group: ConsumerGroup,
        state: ResetState,
        end: Over | Done | Stop,
        known: ResetStatus | None,
    ) -> WorkStatus:
        if isinstance(end, Stop):
            refused = reset_refused(group, end.why, self._stamp(), holds_target=state.holds_target)
            return replace(refused, reset=known)
        reset = group.spec.offsets.reset
        if isinstance(end, Over) or reset is None:
            return WorkStatus()
        done = known if known is not None and known.done_at is not None else ResetStatus(id=reset.id, done_at=end.at)
        return reset_done(group, done, self._stamp())

    def _admin(self) -> GroupAdmin:
        """Return an admin client; call this method in a thread. Raises ClusterUnreachable if no broker answers."""
        return GroupAdmin(self._environment.client(), self._environment.writing)

    def _stamp(self) -> str:
        return time_text(self._environment.clock.now_ms())

    def _log(self, group: ConsumerGroup, text: str) -> None:
        log.info("ConsumerGroup %s/%s: %s", group.metadata.namespace, group.metadata.name, text)
