"""The requests about share groups, which the group coordinator passes to the shard of the group."""

from collections.abc import Callable, Mapping, Sequence

from barnabas_broker.coordinators.groups.shard import GroupShard
from barnabas_broker.coordinators.modern.consumer_heartbeat import BeatReply
from barnabas_broker.coordinators.runtime.runtime import Runtime
from barnabas_broker.coordinators.share.share_group import ShareGroup
from barnabas_broker.coordinators.share.share_groups import PartitionErrors, ShareEnvironment
from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat, check
from barnabas_broker.coordinators.share_state.persister import OnOutcomes
from barnabas_broker.coordinators.share_state.share_state import ReadEntry
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition


class ShareRequests:
    """The requests about share groups (KIP-932) of one group coordinator."""

    def __init__(self, runtime: Runtime[GroupShard], environment: ShareEnvironment) -> None:
        self._runtime = runtime
        self._environment = environment

    @property
    def are_on(self) -> bool:
        """True if the cluster has share groups."""
        return self._environment.is_on()

    def is_read_committed(self, group_id: str) -> bool:
        """True if a share group gets only records of committed transactions."""
        return self._environment.settings(group_id).is_read_committed

    def beat(self, request: ShareBeat, answer: Callable[[BeatReply], object]) -> None:
        """Handle a ShareGroupHeartbeat."""
        try:
            check(request)
            self._shard(request.group_id).share.beat(request, answer)
        except ApiError as error:
            answer(BeatReply(error.code, error.message, request.member_id))

    def group(self, group_id: str) -> ShareGroup:
        """Return a share group. Raises ApiError, with GROUP_ID_NOT_FOUND if there is none."""
        return self._shard(group_id).share.find(group_id)

    def read_summary(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read epochs, start offsets and delivery complete counts at the share coordinators."""
        self._environment.persister.read_summary(group_id, entries, answer)

    def delete_offsets(
        self, group_id: str, topics: Sequence[str], answer: Callable[[ErrorCode, Mapping[str, ErrorCode]], object]
    ) -> None:
        """Handle a DeleteShareGroupOffsets; answer with an error for the group, and one for each topic."""
        try:
            self._shard(group_id).share.delete_offsets(group_id, topics, answer)
        except ApiError as error:
            answer(error.code, {})

    def alter_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, int],
        answer: Callable[[ErrorCode, PartitionErrors], object],
    ) -> None:
        """Handle an AlterShareGroupOffsets; answer with an error for the group, and those of partitions."""
        try:
            self._shard(group_id).share.alter_offsets(group_id, offsets, answer)
        except ApiError as error:
            answer(error.code, {})

    def _shard(self, group_id: str) -> GroupShard:
        """Return the shard of a group, which is a share group or does not exist. Raises ApiError."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
        shard = self._runtime.find(group_id)
        if shard.find(group_id) is not None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        return shard
