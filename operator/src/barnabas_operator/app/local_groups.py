"""The consumer groups that manifest files declare, in a Cluster on this machine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas_core.clock import Clock
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.kafka.group_looks import GroupLooks, Looked
from barnabas_operator.kube.api import NOT_FOUND, KubeApi, KubeRefused
from barnabas_operator.planning.conditions import with_problem
from barnabas_operator.planning.groups.group_status import unheard
from barnabas_operator.planning.owners import owners
from barnabas_operator.planning.refusal import CLUSTER_NOT_READY, Refusal
from barnabas_operator.planning.time_text import time_text
from barnabas_operator.reconcile.groups.group_client import GroupClient
from barnabas_operator.reconcile.groups.group_environment import GroupEnvironment
from barnabas_operator.reconcile.groups.group_work import GroupWork
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup

LOOK_S: Final = 15.0
PATIENCE_S: Final = 60.0


class NoKubeApi(KubeApi):
    """A stand-in for the client of the Kubernetes API, for a machine without Kubernetes; it refuses every request."""

    def __init__(self) -> None:
        """Create a client that connects to no API server."""

    async def request(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Raise KubeRefused for every request."""
        raise KubeRefused(NOT_FOUND, "NotFound", "`barnabas up` runs without Kubernetes")


class Groups(NamedTuple):
    """The declared groups, and the groups that are no longer declared but wait for their deletion, with statuses."""

    declared: tuple[ConsumerGroup, ...]
    removed: tuple[ConsumerGroup, ...]
    is_busy: bool


class LocalGroups:
    """The groups of one Cluster; `bootstrap` returns the addresses of the Cluster's brokers."""

    def __init__(
        self, bootstrap: Callable[[], str], writing: TimedWrite, clock: Clock, security: Callable[[], Credentials]
    ) -> None:
        self._clock: Final = clock
        self._client: Final = GroupClient(bootstrap, security)
        self._looks: Final = GroupLooks(PATIENCE_S, clock)
        self._work: Final = GroupWork(GroupEnvironment(NoKubeApi(), "default", self._client.connected, writing, clock))

    def close(self) -> None:
        """Close the connections to brokers."""
        self._client.drop()

    async def bring(
        self, cluster: Cluster, declared: Sequence[ConsumerGroup], removed: Sequence[ConsumerGroup]
    ) -> Groups:
        """Reconcile each declared group once; carry out the deletion policies of groups that are no longer declared.

        Return the declared groups, and the groups in `removed` whose deletion must wait, with their new statuses.
        """
        looked = await self._look(declared) if declared else Looked({}, "")
        owned = owners(declared, lambda group: group.group_id)
        worked = [await self._bring(cluster, group, owned, looked) for group in declared]
        ended = [await self._end(group, owned) for group in removed]
        stay = tuple(group for group in ended if group is not None)
        groups = tuple(group for group, _ in worked)
        return Groups(groups, stay, bool(stay) or any(is_busy for _, is_busy in worked))

    async def _look(self, groups: Sequence[ConsumerGroup]) -> Looked:
        group_ids = {group.group_id for group in groups}
        try:
            return await asyncio.to_thread(lambda: self._looks.look(self._client.connected, group_ids))
        except ClusterUnreachable as error:
            self._client.drop()
            return Looked({}, str(error))

    async def _bring(
        self, cluster: Cluster, group: ConsumerGroup, owned: Mapping[str, ConsumerGroup], looked: Looked
    ) -> tuple[ConsumerGroup, bool]:
        seen = looked.groups.get(group.group_id)
        worked = await self._work.bring(cluster, group, owned[group.group_id], seen) if seen is not None else None
        if worked is not None:
            return worked.group, worked.is_busy
        why = Refusal(CLUSTER_NOT_READY, f"the brokers do not answer: {looked.unheard or 'trying again'}")
        return unheard(group, why, self._now()), True

    async def _end(self, group: ConsumerGroup, owned: Mapping[str, ConsumerGroup]) -> ConsumerGroup | None:
        """Carry out the deletion policy of a group; if the deletion must wait, return the group with the reason."""
        try:
            why = await self._work.end(group, owned)
        except ClusterUnreachable as error:
            why = Refusal(CLUSTER_NOT_READY, f"the brokers do not answer: {error}")
        return with_problem(group, why, self._now()) if why is not None else None

    def _now(self) -> str:
        return time_text(self._clock.now_ms())
