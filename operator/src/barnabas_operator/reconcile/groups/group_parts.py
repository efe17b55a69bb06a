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

    `client` connects to the brokers; it must be called in a thread. `writing` is a context for each request that
    changes something; its argument is the request's time limit in seconds.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock


class GroupPart(Protocol):
    """A reconciler for one aspect of the ConsumerGroups of one Cluster."""

    async def act(self, cluster: Cluster, group: ConsumerGroup, seen: GroupSeen, work: WorkStatus) -> WorkStatus:
        """Take the next step for a group that is not paused; return `work` with the conditions of this aspect added."""

    async def hold(self, group: ConsumerGroup, why: str, work: WorkStatus) -> WorkStatus:
        """Undo temporary changes in Kubernetes while the group cannot be reconciled; `why` is the reason.

        Sends no request to brokers. Returns `work` with the conditions of this aspect added.
        """

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Undo temporary changes in Kubernetes, because the resource is being deleted. Sends no request to brokers.

        Returns why the deletion has to wait, or None.
        """

    async def end(self, group: ConsumerGroup) -> Refusal | None:
        """Carry out the deletion policy; return why the deletion has to wait, or None."""
