"""The worker for the consumer groups of a Cluster: looks at those that have resources, and does what these say.

Groups are slow to read, and come by the thousand: no round over brokers or Topics waits for this.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from msgspec.structs import replace

from barnabas_kafka.connection import ClusterUnreachable
from barnabas_operator.kafka.group_looks import Looked
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.groups.group_deletion import needs_finalizer
from barnabas_operator.planning.groups.group_status import unheard
from barnabas_operator.planning.owners import owners
from barnabas_operator.planning.refusal import (
    CLUSTER_NOT_READY,
    DELETION_PROTECTED,
    INVALID_SPEC,
    KUBERNETES_ERROR,
    Refusal,
)
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.planning.waiting_resources import has_news, why_waiting
from barnabas_operator.reconcile.broker_calls import blocking
from barnabas_operator.reconcile.finalizers import with_finalizers
from barnabas_operator.reconcile.groups.group_client import GroupClient
from barnabas_operator.reconcile.groups.group_parts import GroupEnvironment
from barnabas_operator.reconcile.groups.group_statuses import GroupStatuses
from barnabas_operator.reconcile.groups.group_work import GroupWork
from barnabas_operator.reconcile.kind_reconciler import Bodies, ReconcilerEnvironment
from barnabas_operator.reconcile.parsed_resources import ParsedResources
from barnabas_operator.reconcile.reconcile_parts import is_expected, retry_pause_s
from barnabas_operator.reconcile.status_writer import StatusWriter
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ConsumerGroup, ConsumerGroupStatus
from barnabas_operator.resources.json_types import Json

log = logging.getLogger(__name__)

AWAY_S: Final = 30.0
"""For so long a group that nobody can look at stays as it was: in a roll coordinators move."""
BUSY_S_MIN: Final = 2.0
"""From one look to the next while something is under way, as a reset that waits: it may for hours."""


class Looks(Protocol):
    """Looks at groups, in a thread."""

    def look(self, connected: Callable[[], Any], group_ids: Collection[str]) -> Looked:
        """At these, over the client that is connected. Raises ClusterUnreachable."""


class GroupWorker:
    """`begin`, `rest` and `stop` are what the rounds over the Cluster say; `run` ends with them."""

    def __init__(self, environment: ReconcilerEnvironment, looks: Looks) -> None:
        worker_environment = environment.worker_environment
        self._environment: Final = environment
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._leadership: Final = worker_environment.leadership
        self._statuses: Final = StatusWriter(worker_environment.api, worker_environment.clock)
        self._told: Final = GroupStatuses(self._statuses, worker_environment.clock.monotonic_s)
        self._client: Final = GroupClient(self._bootstrap)
        self._looks: Final = looks
        self._work: Final = GroupWork(
            GroupEnvironment(
                worker_environment.api,
                environment.key.namespace,
                self._client.connected,
                worker_environment.leadership.writing,
                worker_environment.clock,
            )
        )
        self._read: Final = ParsedResources(ConsumerGroup)
        self._cluster: Cluster | None = None
        self._why_resting = ""
        self._known: Mapping[str, Json] = {}
        self._before: Mapping[str, ConsumerGroupStatus | None] = {}
        self._heard_at: dict[str, float] = {}
        """When each resource's group was looked at last, or was to be for the first time."""
        self._woken: Final = asyncio.Event()
        self._round_turn: Final = asyncio.Lock()
        self._began_at: float | None = None

    def begin(self, cluster: Cluster, bodies: Bodies) -> None:
        """The brokers answer, and these resources are to be brought about."""
        if self._cluster is None or self._why_resting:
            self._woken.set()
        self._cluster, self._why_resting = cluster, ""
        self._hear(bodies)

    def rest(self, bodies: Bodies, why: str) -> None:
        """The brokers are not to be asked, or cannot be."""
        if why != self._why_resting:
            self._woken.set()
        self._why_resting = why
        self._hear(bodies)

    def stop(self) -> None:
        """Nothing is to be done any more."""
        self._cluster, self._why_resting = None, ""

    async def stopped(self) -> None:
        """Nothing is to be done any more: returns when the look that is under way has ended."""
        self.stop()
        async with self._round_turn:
            pass

    def close(self) -> None:
        """Closes the connection for good."""
        self._client.end()

    @property
    def idle_s(self) -> float:
        """How long ago the look that is under way did something; 0 between looks."""
        if self._began_at is None:
            return 0.0
        return self._clock.monotonic_s() - max(self._began_at, self._statuses.wrote_at, self._work.acted_at)

    async def run(self) -> None:
        """Look after look, until it is cancelled."""
        pause, failures = 0.0, 0
        while True:
            await self._pause(pause)
            self._began_at = self._clock.monotonic_s()
            try:
                async with self._round_turn:
                    is_busy = await self._round()
                pause, failures = self._pause_s(self._clock.monotonic_s() - self._began_at, is_busy=is_busy), 0
            except Exception as error:
                failures += 1
                pause = retry_pause_s(self._settings.busy_s, failures)
                is_bug = not is_expected(error)
                log.warning("%s/%s: groups: in %.1f s again: %s", *self._environment.key, pause, error, exc_info=is_bug)
                self._client.drop()
            self._began_at = None

    def _pause_s(self, took_s: float, *, is_busy: bool) -> float:
        """At most half of the time is spent on looks."""
        every_s = self._settings.group_look_s
        return max(took_s, min(every_s, BUSY_S_MIN) if is_busy else every_s - took_s)

    def _bootstrap(self) -> str:
        assert self._cluster is not None, "without a Cluster nobody is asked"
        return self._settings.bootstrap_of(self._cluster)

    def _hear(self, bodies: Bodies) -> None:
        """Wakes the worker where something is to be done that the last look did not know of."""
        now_known = {name: _asked(body) for name, body in bodies.items()}
        if now_known != self._known:
            self._woken.set()
        self._known = now_known

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()
            await asyncio.sleep(self._settings.batch_s)
        self._woken.clear()

    async def _round(self) -> bool:
        """One look at all that is there now; whether the next is to come soon."""
        bodies = self._environment.found(CONSUMER_GROUP.name)
        if not self._leadership.is_held:
            self.stop()  # What is known of the Cluster is old by the time that this one acts again.
            return False
        self._statuses.begin()
        groups = await self._readable(bodies)
        self._note_first_seen(groups)
        is_busy = False
        if self._why_resting:
            await self._wait(groups, bodies, self._why_resting)
        elif self._cluster is not None and groups:
            is_busy = await self._bring(self._cluster, groups, bodies)
        self._statuses.check()
        return is_busy

    async def _readable(self, bodies: Bodies) -> Sequence[ConsumerGroup]:
        """The others are told what is wrong."""
        groups, invalid = self._read.all(bodies.values())
        groups = [self._newest(group, bodies) for group in groups]
        self._before = {group.metadata.name: group.status for group in (*groups, *(group for group, _ in invalid))}
        told_at = self._now()
        await self._tell((with_problem(group, Refusal(INVALID_SPEC, why), told_at) for group, why in invalid), bodies)
        return groups

    def _note_first_seen(self, groups: Iterable[ConsumerGroup]) -> None:
        names, now_s = [group.metadata.name for group in groups], self._clock.monotonic_s()
        self._heard_at = {name: self._heard_at.get(name, now_s) for name in names}
        self._work.forget(names)

    async def _bring(self, cluster: Cluster, groups: Sequence[ConsumerGroup], bodies: Bodies) -> bool:
        declared = [group for group in groups if group.metadata.deletion_timestamp is None]
        ending = [group for group in groups if group.metadata.deletion_timestamp is not None]
        owned = owners(declared, lambda group: group.group_id)  # Also by those that wait for their finalizer.
        declared = await with_finalizers(self._statuses, declared, bodies, needs_finalizer, self._now())
        is_busy = await self._bring_declared(cluster, declared, owned, bodies)
        are_left = await asyncio.gather(*(self._end(cluster, group, owned.keys(), bodies) for group in ending))
        return is_busy or any(are_left)

    async def _look(self, groups: Iterable[ConsumerGroup]) -> Looked:
        """At all of them at once. Where nobody answers, nothing is known of any."""
        group_ids = {group.group_id for group in groups}
        if not group_ids:
            return Looked({}, "")
        try:
            return await blocking(lambda: self._looks.look(self._client.connected, group_ids))
        except ClusterUnreachable as error:
            self._client.drop()
            return Looked({}, str(error))

    async def _bring_declared(
        self, cluster: Cluster, declared: Sequence[ConsumerGroup], owned: Mapping[str, ConsumerGroup], bodies: Bodies
    ) -> bool:
        looked = await self._look(declared)
        seen = [(group, looked.groups[group.group_id]) for group in declared if group.group_id in looked.groups]
        self._heard_at |= dict.fromkeys((group.metadata.name for group, _ in seen), self._clock.monotonic_s())
        worked = await asyncio.gather(
            *(self._work.bring(cluster, group, owned[group.group_id], found) for group, found in seen)
        )
        done = [each for each in worked if each is not None]
        silent = [group for group in declared if group.group_id not in looked.groups]
        name = cluster.metadata.name
        await self._tell_unheard(silent, bodies, f"Cluster {name} does not answer: {looked.unheard or 'trying again'}")
        await self._tell((each.group for each in done), bodies)
        return len(done) < len(worked) or any(each.is_busy for each in done)

    async def _end(self, cluster: Cluster, group: ConsumerGroup, owned: Collection[str], bodies: Bodies) -> bool:
        """Whether something is under way that it has to stay for."""
        body = bodies[group.metadata.name]
        try:
            why = await self._work.end(group, owned)
        except ClusterUnreachable as error:
            log.info("%s/%s: %s", *self._environment.key, error)
            why = why_waiting(group, f"Cluster {cluster.metadata.name} does not answer")
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, error.message)
        if why is None:
            await self._statuses.release(body)
        else:
            await self._tell([with_problem(group, why, self._now())], bodies)
        return why is not None and why.reason != DELETION_PROTECTED

    async def _wait(self, groups: Sequence[ConsumerGroup], bodies: Bodies, why: str) -> None:
        """Without the brokers: those that need none of them may go, the others hear why nothing is done."""
        going = [each for each in groups if each.metadata.deletion_timestamp is not None and _may_go(each)]
        await asyncio.gather(*(self._go(each, bodies) for each in going))
        await self._tell_unheard([each for each in groups if each not in going], bodies, why)

    async def _go(self, group: ConsumerGroup, bodies: Bodies) -> None:
        """What a reset scaled down is scaled up first: that needs no brokers."""
        try:
            why = await self._work.clean_up(group)
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, error.message)
        if why is None:
            await self._statuses.release(bodies[group.metadata.name])
        else:
            await self._tell([with_problem(group, why, self._now())], bodies)

    async def _tell_unheard(self, groups: Sequence[ConsumerGroup], bodies: Bodies, why: str) -> None:
        """At once where nothing was said of what is declared now; the others were looked at a moment ago."""
        late = [each for each in groups if has_news(each) or self._is_long_unheard(each)]
        await self._tell(await asyncio.gather(*(self._unheard(each, why) for each in late)), bodies)

    async def _unheard(self, group: ConsumerGroup, why: str) -> ConsumerGroup:
        """Nobody knows how long it takes: what a reset has scaled down does not wait for that."""
        reason = why_waiting(group, why) or Refusal(CLUSTER_NOT_READY, why)
        held = await self._work.hold(group, reason.message) if self._is_long_unheard(group) else None
        return unheard(group, reason, self._now(), held)

    def _is_long_unheard(self, group: ConsumerGroup) -> bool:
        return self._clock.monotonic_s() - self._heard_at[group.metadata.name] > AWAY_S

    async def _tell(self, groups: Iterable[ConsumerGroup], bodies: Bodies) -> None:
        await self._told.tell(((group, self._before[group.metadata.name]) for group in groups), bodies)

    def _newest(self, group: ConsumerGroup, bodies: Bodies) -> ConsumerGroup:
        """With the status that was written last, which the watch may not have told of yet."""
        written = self._statuses.newer_than(bodies[group.metadata.name])
        return replace(group, status=written) if isinstance(written, ConsumerGroupStatus) else group

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


def _may_go(group: ConsumerGroup) -> bool:
    """Whether nothing is to be done, or to be said, before the resource is gone."""
    return group.is_paused or group.spec.deletion_policy == "Retain"


def _asked(body: Json) -> Json:
    """What a resource asks for, without what the worker itself writes."""
    meta = body["metadata"]
    return {"uid": meta["uid"], "generation": meta.get("generation"), "goes": "deletionTimestamp" in meta}
