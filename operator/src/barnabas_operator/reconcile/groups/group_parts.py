"""The interface of the classes that reconcile one aspect of a ConsumerGroup, such as offset resets and scaling."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from barnabas_core.clock import Clock
from barnabas_operator.kafka.cluster_admin import TimedWrite
from barnabas_operator.kube.api import KubeApi
from barnabas_operator.planning.groups.group_seen import GroupSeen
from barnabas_operator.planning.groups.work_status import WorkStatus
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.consumer_group import ConsumerGroup


class GroupEnvironment(NamedTuple):
    """The clients and the clock with which a GroupPart works in one Cluster.

    `client` connects to the brokers; it must be called in a thread. Each request that changes something must run in the
    context manager that `writing(seconds)` returns; `seconds` is the time limit of the request.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock


class GroupPart(Protocol):
    """A reconciler for one part of the ConsumerGroups of one Cluster, such as offset resets or scaling."""

    async def act(self, cluster: Cluster, group: ConsumerGroup, seen: GroupSeen, work: WorkStatus) -> WorkStatus:
        """Do what is due for a group that is not paused, such as to commit the offsets of a reset, or to scale.

        Returns `work` with the conditions of this GroupPart added.
        """

    async def hold(self, group: ConsumerGroup, why: str, work: WorkStatus) -> WorkStatus:
        """Undo this GroupPart's temporary changes in Kubernetes while the group is not reconciled.

        `why` says why the group is not reconciled. Sends no request to brokers. Returns `work` with the conditions of
        this GroupPart added.
        """

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Undo this GroupPart's temporary changes in Kubernetes, because the ConsumerGroup is being deleted.

        Sends no request to brokers. Returns why the deletion has to wait, or None.
        """

    async def end(self, group: ConsumerGroup) -> Refusal | None:
        """Carry out the deletion policy; return why the deletion has to wait, or None."""
