"""The parts of the work on a consumer group, each with its part of the status."""

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
    """The environment of a part, in one Cluster. `client` connects; it and all that it does is called in threads.

    `writing` is entered for each request to brokers that changes something, with the seconds that it may take.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock


class GroupPart(Protocol):
    """A part of the work on the groups of one Cluster, one group after the other.

    It raises what ReconcileParts expects of a part.
    """

    async def act(self, cluster: Cluster, group: ConsumerGroup, seen: GroupSeen, work: WorkStatus) -> WorkStatus:
        """Take a step, if there is one. Return `work` with this part of the status.

        Never called for a paused group.
        """

    async def hold(self, group: ConsumerGroup, why: str, work: WorkStatus) -> WorkStatus:
        """Undo temporary changes in Kubernetes, because the group is on hold for `why`.

        Asks no brokers. Returns `work` with this part of the status.
        """

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """Undo temporary changes in Kubernetes, because the resource is being deleted.

        Asks no brokers. Returns why the deletion has to wait; None if nothing is left.
        """

    async def end(self, group: ConsumerGroup) -> Refusal | None:
        """Carry out the deletion policy; return why the deletion must wait, None once nothing is left."""
