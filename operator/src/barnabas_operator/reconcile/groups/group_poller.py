"""Reconciles the ConsumerGroups of a Cluster in a background worker.

Reading thousands of groups is slow, and must not delay the reconciliation of brokers and Topics.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Protocol

from barnabas_kafka.connection import ClusterUnreachable, connected_client
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_operator.kafka.group_admin import GroupReader, ObservedGroups
from barnabas_operator.kube.api import KubeRefused
from barnabas_operator.planning.conditions import (
    CLUSTER_NOT_READY,
    DELETION_PROTECTED,
    INVALID_SPEC,
    KUBERNETES_ERROR,
    Refusal,
    owners,
    time_text,
    with_problem,
)
from barnabas_operator.planning.groups.group_status import is_worth_a_write, needs_finalizer, unheard
from barnabas_operator.planning.rules_of_kinds import has_news, may_go, why_waiting
from barnabas_operator.reconcile.groups.group_work import GroupWork
from barnabas_operator.reconcile.groups.offset_resets import GroupEnvironment, give_back_target
from barnabas_operator.reconcile.reconcile_parts import Pace, PacedStatuses, Poller, blocking
from barnabas_operator.reconcile.worker_environment import (
    Bodies,
    ParsedResources,
    ReconcilerEnvironment,
    StatusWriter,
    all_ended,
    broker_access,
)
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import CONSUMER_GROUP, ConsumerGroup, ConsumerGroupStatus
from barnabas_operator.resources.kind import Json

CONNECT_S: Final = 3.0
CLIENT_ID: Final = "barnabas-operator-groups"


class GroupClient:
    """The client that reads and changes consumer groups. Its methods are called in threads."""

    def __init__(self, bootstrap: Callable[[], str], security: Callable[[], Credentials] = lambda: IN_CLEAR) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self._client: Any = None
        self._has_ended = False
        self._connecting: Final = Lock()

    def connected(self) -> Any:
        """Return a connected client. Raises ClusterUnreachable if no broker answers, or if `end` was called."""
        with self._connecting:  # Threads for several groups may call this method at the same time.
            client = self._client = self._client or self._connect()
        if self._has_ended:
            client.close()
            raise ClusterUnreachable("the worker for consumer groups has ended")
        return client

    def _connect(self) -> Any:
        return connected_client(self._bootstrap(), CONNECT_S, CLIENT_ID, self._security())

    def drop(self) -> None:
        """Close the connection, so that the next call connects again."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def end(self) -> None:
        """Close the connection, and never connect again."""
        self._has_ended = True
        self.drop()


log = logging.getLogger(__name__)

AWAY_S: Final = 30.0
"""The time for which a group that cannot be read keeps its last status, for example while the coordinator restarts."""
BUSY_S_MIN: Final = 2.0
"""The shortest pause between reconciliations while, for example, a reset waits until the group has no members."""
PATIENCE_POLLS: Final = 4
"""The number of intervals (GROUP_POLL_SECONDS) without progress after which a group counts as stalled or stopped."""
PACE: Final = Pace(is_worth_a_write, every_s=60.0, at_once_max=30)


class ReadsGroups(Protocol):
    """The interface for reading groups from the brokers."""

    def read(self, connected: Callable[[], Any], group_ids: Collection[str]) -> ObservedGroups:
        """Read these groups with the client that `connected` returns; the call blocks.

        Raises ClusterUnreachable if no broker answers.
        """


class GroupPoller(Poller):
    """The reconciler of the ConsumerGroups of one Cluster, which a background worker calls."""

    kind = CONSUMER_GROUP.name

    def __init__(self, environment: ReconcilerEnvironment, reader: ReadsGroups) -> None:
        worker_environment = environment.worker_environment
        self._key: Final = environment.key
        self._settings: Final = worker_environment.settings
        self._clock: Final = worker_environment.clock
        self._api: Final = worker_environment.api
        self._statuses: Final = StatusWriter(worker_environment.api, worker_environment.clock)
        self._paced: Final = PacedStatuses[ConsumerGroup](self._statuses, worker_environment.clock.monotonic_s, PACE)
        self._client: Final = GroupClient(self._bootstrap, lambda: self._access)
        self._prove: Final = worker_environment.prove
        self._access: Credentials = IN_CLEAR
        self._reader: Final = reader
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
        self._before: Mapping[str, ConsumerGroupStatus | None] = {}
        self._read_at: dict[str, float] = {}
        """The monotonic time when each group was last read, by name of the ConsumerGroup.

        Before a group is read for the first time, this is the time when the ConsumerGroup was first seen.
        """

    def close(self) -> None:
        """Close the connection to the brokers."""
        self._client.end()

    @property
    def acted_at(self) -> float:
        """Return the monotonic time of the last written status, offset reset or scaling step, whichever is latest."""
        return max(self._statuses.wrote_at, self._work.acted_at)

    async def give_back(self, body: Json) -> None:
        """Scale up the workload that a reset of this ConsumerGroup scaled down."""
        await give_back_target(self._api, self._clock, body)

    def poll_failed(self) -> None:
        """Close the connection after any error, so that the next call of `poll` connects again."""
        self._client.drop()

    def pause_s(self, took_s: float, *, is_busy: bool) -> float:
        """Return the seconds to wait before the next call of `poll`: at least `took_s`, which the last call took."""
        every_s = self._settings.group_poll_s
        return max(took_s, min(every_s, BUSY_S_MIN) if is_busy else every_s - took_s)

    def _bootstrap(self) -> str:
        assert self._cluster is not None, "the operator must read the Cluster before it reads the Cluster's groups"
        return self._settings.bootstrap_of(self._cluster)

    async def poll(self, cluster: Cluster | None, why_resting: str, bodies: Bodies) -> bool:
        """Reconcile all groups once; return True if the next call must come soon."""
        self._cluster = cluster
        self._statuses.begin()
        self._paced.keep(bodies)
        groups = await self._readable(bodies)
        self._note_first_seen(groups)
        is_busy = False
        if why_resting:
            await self._wait(groups, bodies, why_resting)
        elif cluster is not None and groups:
            is_busy = await self._bring(cluster, groups, bodies)
        self._statuses.check()
        return is_busy

    async def _readable(self, bodies: Bodies) -> Sequence[ConsumerGroup]:
        groups, invalid = self._read.all(bodies.values())
        groups = [self._statuses.newest(group, bodies[group.metadata.name]) for group in groups]
        self._before = {group.metadata.name: group.status for group in (*groups, *(group for group, _ in invalid))}
        now = self._now()
        await self._write((with_problem(group, Refusal(INVALID_SPEC, why), now) for group, why in invalid), bodies)
        return groups

    def _note_first_seen(self, groups: Iterable[ConsumerGroup]) -> None:
        names, now_s = [group.metadata.name for group in groups], self._clock.monotonic_s()
        self._read_at = {name: self._read_at.get(name, now_s) for name in names}
        self._work.forget(names)

    async def _bring(self, cluster: Cluster, groups: Sequence[ConsumerGroup], bodies: Bodies) -> bool:
        declared = [group for group in groups if group.metadata.deletion_timestamp is None]
        ending = [group for group in groups if group.metadata.deletion_timestamp is not None]
        # Choose the owners first, because `with_finalizers` may leave out the ConsumerGroup that owns its group.
        owned = owners(declared, lambda group: group.group_id)
        declared = await self._statuses.with_finalizers(declared, bodies, needs_finalizer)
        is_busy = await self._bring_declared(cluster, declared, owned, bodies)
        are_left = await all_ended(self._end(group, bodies, self._work.end(group, owned.keys())) for group in ending)
        return is_busy or any(are_left)

    async def _read_groups(self, groups: Iterable[ConsumerGroup]) -> ObservedGroups:
        group_ids = {group.group_id for group in groups}
        if not group_ids:
            return ObservedGroups({}, "")
        assert self._cluster is not None, "the operator must read the Cluster before it reads the Cluster's groups"
        try:
            self._access = await broker_access(self._api, self._cluster, self._prove)
            return await blocking(lambda: self._reader.read(self._client.connected, group_ids))
        except ClusterUnreachable as error:
            self._client.drop()
            return ObservedGroups({}, str(error))

    async def _bring_declared(
        self, cluster: Cluster, declared: Sequence[ConsumerGroup], owned: Mapping[str, ConsumerGroup], bodies: Bodies
    ) -> bool:
        observed = await self._read_groups(declared)
        seen = [(group, observed.groups[group.group_id]) for group in declared if group.group_id in observed.groups]
        self._read_at |= dict.fromkeys((group.metadata.name for group, _ in seen), self._clock.monotonic_s())
        worked = await all_ended(
            self._work.bring(cluster, group, owned[group.group_id], found) for group, found in seen
        )
        done = [each for each in worked if each is not None]
        silent = [group for group in declared if group.group_id not in observed.groups]
        name = cluster.metadata.name
        await self._write_unheard(
            silent, bodies, f"Cluster {name} does not answer: {observed.unheard or 'trying again'}"
        )
        await self._write((each.group for each in done), bodies)
        return len(done) < len(worked) or any(each.is_busy for each in done)

    async def _end(self, group: ConsumerGroup, bodies: Bodies, ending: Awaitable[Refusal | None]) -> bool:
        """Remove the finalizer unless `ending` returns why this has to wait; return True if a retry must come soon."""
        try:
            why = await ending
        except ClusterUnreachable as error:
            log.info("%s/%s: %s", *self._key, error)
            why = why_waiting(group, f"Cluster {self._key.name} does not answer")
        except KubeRefused as error:
            why = Refusal(KUBERNETES_ERROR, error.message)
        if why is None:
            await self._statuses.release(bodies[group.metadata.name])
        else:
            await self._write([with_problem(group, why, self._now())], bodies)
        return why is not None and why.reason != DELETION_PROTECTED

    async def _wait(self, groups: Sequence[ConsumerGroup], bodies: Bodies, why: str) -> None:
        """Remove the finalizers of deleted ConsumerGroups whose deletion needs no broker.

        Write `why`, the reason why nothing can be reconciled, into the status of all other ConsumerGroups.
        """
        going = [each for each in groups if each.metadata.deletion_timestamp is not None and may_go(each)]
        await all_ended(self._end(each, bodies, self._work.clean_up(each)) for each in going)
        await self._write_unheard([each for each in groups if each not in going], bodies, why)

    async def _write_unheard(self, groups: Sequence[ConsumerGroup], bodies: Bodies, why: str) -> None:
        """Write the reason `why` into the status of groups that are new or changed, or last read over AWAY_S ago."""
        late = [each for each in groups if has_news(each) or self._is_long_unheard(each)]
        await self._write(await all_ended(self._unheard(each, why) for each in late), bodies)

    async def _unheard(self, group: ConsumerGroup, why: str) -> ConsumerGroup:
        """Return the group with a status that says `why` the group is not read.

        If the group was last read more than AWAY_S seconds ago, scale up the workload that an offset reset scaled down.
        """
        reason = why_waiting(group, why) or Refusal(CLUSTER_NOT_READY, why)
        work = await self._work.hold(group, reason.message) if self._is_long_unheard(group) else None
        return unheard(group, reason, self._now(), work)

    def _is_long_unheard(self, group: ConsumerGroup) -> bool:
        return self._clock.monotonic_s() - self._read_at[group.metadata.name] > AWAY_S

    async def _write(self, groups: Iterable[ConsumerGroup], bodies: Bodies) -> None:
        await self._paced.write(((group, self._before[group.metadata.name]) for group in groups), bodies)

    def _now(self) -> str:
        return time_text(self._clock.now_ms())


def group_poller(environment: ReconcilerEnvironment) -> GroupPoller:
    """Return the reconciler of ConsumerGroups that a background worker calls."""
    worker_environment = environment.worker_environment
    patience_s = PATIENCE_POLLS * worker_environment.settings.group_poll_s
    return GroupPoller(environment, GroupReader(patience_s, worker_environment.clock))
