"""Reconciles a ConsumerGroup after it was read: resets offsets, scales, checks the lag objective, makes the status."""

import asyncio
import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec.structs import replace as replaced

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kube.api import KubeUnreachable
from barnabas_operator.leader_election.leadership import NotLeading
from barnabas_operator.planning.conditions import PAUSE
from barnabas_operator.planning.groups.group_checks import is_claimed, refuse_group
from barnabas_operator.planning.groups.group_status import WorkStatus, group_status
from barnabas_operator.planning.groups.observed_group import GroupSeen, Judged, judged, missed_since_s, misses
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.planning.topics.topic_checks import deletion_protected
from barnabas_operator.reconcile.groups.group_environment import GroupEnvironment
from barnabas_operator.reconcile.groups.lag_scaling import LagScaling
from barnabas_operator.reconcile.groups.offset_resets import OffsetResets
from barnabas_operator.reconcile.reconcile_parts import is_expected, refusal_of
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup
from barnabas_operator.resources.object_meta import OFFSETS_RESET, WITHIN_OBJECTIVE, condition_of

log = logging.getLogger(__name__)

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

    async def _acted(self, group: ConsumerGroup, seen: GroupSeen) -> WorkStatus:
        try:
            work = await self._resets.act(group)
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
