"""Carries out offset resets, and deletes the group or its offsets if the ConsumerGroup is deleted and declares so."""

import logging

from barnabas_core.reset_mark import reset_mark
from barnabas_operator.kafka.group_admin import GroupAdmin, Refused
from barnabas_operator.kafka.reset_planning import plan_now, plan_of, reset_descriptions
from barnabas_operator.planning.groups.group_status import (
    ASKS_BROKERS,
    DeleteGroup,
    WorkStatus,
    deletion_step,
    final_condition,
    is_unfinished,
    known_reset,
    may_hold_target,
    on_hold,
    reset_done,
    reset_planned,
    reset_refused,
    still_active,
)
from barnabas_operator.planning.groups.observed_group import Committed, GroupDescription
from barnabas_operator.planning.groups.reset_plan import ResetPlan, refuse_size
from barnabas_operator.planning.groups.reset_step import (
    Commit,
    Done,
    Over,
    Plan,
    Remember,
    ResetLook,
    Scale,
    Stop,
    next_step,
    resets_of,
    without_plan,
)
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.groups.group_environment import GroupEnvironment
from barnabas_operator.reconcile.groups.reset_targets import CHANGES, STEPS_MAX, ResetTargets
from barnabas_operator.resources.consumer_group import ConsumerGroup, Reset, ResetStatus
from barnabas_operator.resources.object_meta import OFFSETS_RESET, condition_of

log = logging.getLogger(__name__)


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
            look = await self._look(group, group.spec.offsets.reset, known)
            step = next_step(look)
            if isinstance(step, Plan):
                return await self._dry_run(group, look)
            end: Over | Done | Stop | None
            if isinstance(step, Commit):
                done, end = await self._commit(group, look)
                known = done or known
            elif isinstance(step, Remember | Scale):
                end = await self._scale(group, look, step)
            else:
                end = step
            if end is not None:
                return self._status_after(group, look, end, known)
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

    async def _look(self, group: ConsumerGroup, reset: Reset | None, known: ResetStatus | None) -> ResetLook:
        """Return the state of the reset, of the group, and of the workload that `spec.scaling.target` names."""
        done_at = known.done_at if known is not None else None
        described = GroupDescription()
        if reset is not None and done_at is None:
            described = await blocking(lambda: self._admin().describe([group.group_id]).groups[group.group_id])
        return await self._targets.look(group, reset, done_at, described)

    async def _dry_run(self, group: ConsumerGroup, look: ResetLook) -> WorkStatus:
        plan = await self._plan(look)
        if isinstance(plan, Refusal):
            return reset_refused(group, plan, self._stamp(), holds_target=False)
        return reset_planned(group, plan, self._stamp())

    async def _plan(self, look: ResetLook) -> ResetPlan | Refusal:
        reset = look.reset
        assert reset is not None
        return await blocking(lambda: plan_now(self._admin(), reset, look.group_id, look.now))

    async def _commit(self, group: ConsumerGroup, look: ResetLook) -> tuple[ResetStatus | None, Stop | None]:
        """Commit the offsets of the reset; return the reset's new status and None, or None and the reason of a refusal.

        Return None and None if the group or the target workload has changed; the caller must then read both again.
        """
        reset = look.reset
        assert reset is not None
        plan, refused = await blocking(self._commit_now, look, reset)
        if plan is None:
            return None, None
        if isinstance(plan, Refusal):
            return None, await self._without_plan(group, look, plan)
        if refused is None:
            self._log(group, f"the reset {reset.id} has been carried out: {plan}")
            return plan.status(reset.id, self._stamp()), None
        self._log(group, f"the brokers refused the reset {reset.id}: {refused}")
        if refused.has_members:
            return None, None
        return None, await self._without_plan(group, look, Refusal(KAFKA_ERROR, str(refused)))

    async def _without_plan(self, group: ConsumerGroup, look: ResetLook, why: Refusal) -> Stop | None:
        step = without_plan(look, why)
        return await self._scale(group, look, step) if isinstance(step, Remember) else step

    def _commit_now(self, look: ResetLook, reset: Reset) -> tuple[ResetPlan | Refusal | None, Refused | None]:
        """Plan and commit the reset; return the plan and the brokers' refusal. Call this method in a thread.

        The plan is None if an earlier commit, whose response was lost, has already carried out the reset.
        """
        admin = self._admin()
        described = reset_descriptions(admin, reset, look.group_id)
        done = resets_of(described.groups[look.group_id])
        if reset.id in done:
            return None, None
        mark = reset_mark(reset.id, done)
        plan = plan_of(admin, reset, look.group_id, described, look.now)
        if isinstance(plan, Refusal):
            return plan, None
        too_large = refuse_size(plan, look.group_id, mark)
        if too_large is not None:
            return too_large, None
        offsets = {each.partition: Committed(each.to, metadata=mark) for each in plan.moves}
        return plan, admin.commit(look.group_id, offsets)

    async def _scale(self, group: ConsumerGroup, look: ResetLook, step: Remember | Scale) -> Stop | None:
        """Scale or annotate the target workload; return why the reset has to stop, or None if it can go on.

        The workload is not annotated if the reset would be refused.
        """
        in_vain = await self._refusal_before(look, step) if isinstance(step, Remember) else None
        return Stop(in_vain) if in_vain is not None else await self._targets.take(group, look, step)

    async def _refusal_before(self, look: ResetLook, step: Remember) -> Refusal | None:
        """Check, before the target is scaled down, whether the reset would be refused; return the reason, or None."""
        if step.before is None or step.before.gave_up:
            return None
        plan = await self._plan(look)
        return plan if isinstance(plan, Refusal) else None

    async def hold(self, group: ConsumerGroup, why: str) -> WorkStatus:
        """Scale up the workload that an unfinished reset has scaled down, because of `why` the group is not reconciled.

        Sends no request to brokers. The next reconciliation of the group begins the reset again.
        """
        said = condition_of(group.conditions, OFFSETS_RESET)
        if may_hold_target(group):
            refusal = await self._targets.give_back(group, group.spec.offsets.reset)
            said = on_hold(group, refusal, why, self._stamp())
        return WorkStatus(conditions=(said,) if said is not None else ())

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Scale up the workload that a reset of this group scaled down; return why this failed, or None."""
        return await self._targets.give_back(group, None)

    def _delete_now(self, group: ConsumerGroup) -> tuple[Refusal | None, Refused | None]:
        """Delete the group or its offsets; return why the deletion must wait, or None, and the brokers' error, or None.

        Call this method in a thread.
        """
        admin = self._admin()
        step = deletion_step(group, admin.describe([group.group_id]).groups[group.group_id])
        if step is None or isinstance(step, Refusal):
            return step, None
        if isinstance(step, DeleteGroup):
            refused = admin.delete(group.group_id)
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
        look: ResetLook,
        end: Over | Done | Stop,
        known: ResetStatus | None,
    ) -> WorkStatus:
        if isinstance(end, Stop):
            return reset_refused(group, end.why, self._stamp(), holds_target=look.holds_target)
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
