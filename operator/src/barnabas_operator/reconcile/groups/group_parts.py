"""What is done about one consumer group beside looking at it: each part says what its status says of it."""

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
    """What a part works with, of one Cluster. `client` connects, and is called in threads; so is all that it does.

    `writing` is entered for each request to brokers that changes something, with the seconds that it may take.
    """

    api: KubeApi
    namespace: str
    client: Callable[[], Any]
    writing: TimedWrite
    clock: Clock


class GroupPart(Protocol):
    """Of the groups of one Cluster, one after the other. It raises what ReconcileParts expects of a part."""

    async def act(self, cluster: Cluster, group: ConsumerGroup, seen: GroupSeen, work: WorkStatus) -> WorkStatus:
        """Takes a step, if there is one to take. Returns `work` with what the status says of it. Never called for a
        paused group."""

    async def hold(self, group: ConsumerGroup, why: str, work: WorkStatus) -> WorkStatus:
        """Nothing is to be done for now, because of `why`: puts back what was changed in Kubernetes for a while. Asks
        no brokers. Returns `work` with what the status says of it."""

    async def clean_up(self, group: ConsumerGroup) -> Refusal | None:
        """The resource goes, whatever becomes of the group: puts back what was changed in Kubernetes for a while. Asks
        no brokers. Why it has to wait, None where nothing is left."""

    async def end(self, group: ConsumerGroup) -> Refusal | None:
        """Does what the deletion policy asks for; why it has to wait, None where nothing is left."""
