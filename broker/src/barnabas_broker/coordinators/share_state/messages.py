"""The five requests about the state of share-partitions: entries as messages of the protocol, and back."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.runtime.peer_requests import Exchange
from barnabas_broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas_broker.coordinators.share_state.shard import OnOutcome
from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    StateBatch,
    WriteEntry,
)
from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

_NO_TOPIC: Final = UUID(int=0)

Entry = InitializeEntry | ReadEntry | WriteEntry | TopicIdPartition


def partition_of(entry: Entry) -> TopicIdPartition:
    """Return the topic and partition of an entry."""
    return entry if isinstance(entry, TopicIdPartition) else entry.partition


class StateApi(NamedTuple):
    """One of the five requests: its messages, and the method of the coordinator that answers an entry of it."""

    name: str
    version: int
    struct: str
    """The beginning of the names of the nested classes, such as `WriteState` of `WriteStateData`."""
    entry_type: Callable[..., Entry]
    ask: Callable[[ShareCoordinator, str, Any, OnOutcome], None]
    fields: Sequence[str] = ()
    """The fields of an entry and of the request's partition, except the batches."""
    outcome_fields: Sequence[str] = ()
    """The fields of an outcome and of the response's partition, except the error and the batches."""

    @property
    def exchange(self) -> Exchange:
        """The API version that brokers send."""
        return Exchange(f"{self.name}Response", self.version)

    def request(self, group_id: str, entries: Iterable[Entry]) -> Any:
        """Return the request for entries of a group."""
        message = message_class(f"{self.name}Request")
        topic_type = getattr(message, f"{self.struct}Data")
        topics: dict[UUID, list[Any]] = {}
        for entry in entries:
            topic_id, number = partition_of(entry)
            fields = {field: getattr(entry, field) for field in self.fields}
            if isinstance(entry, WriteEntry):
                batch = topic_type.PartitionData.StateBatch
                fields["state_batches"] = [batch(**each._asdict()) for each in entry.batches]
            topics.setdefault(topic_id, []).append(topic_type.PartitionData(partition=number, **fields))
        return message(
            group_id=group_id, topics=[topic_type(topic_id=each, partitions=found) for each, found in topics.items()]
        )

    def entry(self, topic_id: UUID | None, data: Any, batches: Sequence[StateBatch] = ()) -> Entry:
        """Return the entry of a partition in a request; `batches` are those of a write."""
        fields = {field: getattr(data, field) for field in self.fields}
        if self.entry_type is WriteEntry:
            fields["batches"] = batches
        return self.entry_type(TopicIdPartition(topic_id or _NO_TOPIC, data.partition), **fields)

    def result(self, number: int, outcome: ShareOutcome) -> Any:
        """Return the response for a partition."""
        result_type = getattr(message_class(f"{self.name}Response"), f"{self.struct}Result").PartitionResult
        fields = {field: getattr(outcome, field) for field in self.outcome_fields}
        if "state_batches" in result_type.__struct_fields__:
            fields["state_batches"] = [result_type.StateBatch(**each._asdict()) for each in outcome.batches]
        return result_type(partition=number, error_code=outcome.error, error_message=outcome.message, **fields)

    def response(self, topics: Iterable[tuple[UUID | None, Sequence[Any]]]) -> Any:
        """Return the response for topics, each with the results of its partitions."""
        message = message_class(f"{self.name}Response")
        result_type = getattr(message, f"{self.struct}Result")
        return message(results=[result_type(topic_id=each, partitions=list(found)) for each, found in topics])

    def outcomes(self, response: Any) -> Iterator[tuple[TopicIdPartition, ShareOutcome]]:
        """Yield the outcome of each partition in a response."""
        for topic in response.results:
            for found in topic.partitions:
                fields = {field: getattr(found, field) for field in self.outcome_fields}
                if hasattr(found, "state_batches"):
                    fields["batches"] = tuple(map(state_batch, found.state_batches))
                outcome = ShareOutcome(_code(found.error_code), found.error_message, **fields)
                yield TopicIdPartition(topic.topic_id or _NO_TOPIC, found.partition), outcome


def state_batch(found: Any) -> StateBatch:
    """Return a batch of a request or of a response."""
    return StateBatch(found.first_offset, found.last_offset, found.delivery_state, found.delivery_count)


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _same(partition: TopicIdPartition) -> TopicIdPartition:
    return partition


def _summarize(coordinator: ShareCoordinator, group_id: str, entry: ReadEntry, answer: OnOutcome) -> None:
    coordinator.read_summary(group_id, entry.partition, answer)


INITIALIZE: Final = StateApi(
    "InitializeShareGroupState",
    0,
    "InitializeState",
    InitializeEntry,
    ShareCoordinator.initialize,
    ("state_epoch", "start_offset"),
)
READ: Final = StateApi(
    "ReadShareGroupState",
    0,
    "ReadState",
    ReadEntry,
    ShareCoordinator.read,
    ("leader_epoch",),
    ("state_epoch", "start_offset"),
)
WRITE: Final = StateApi(
    "WriteShareGroupState",
    1,
    "WriteState",
    WriteEntry,
    ShareCoordinator.write,
    ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count"),
)
DELETE: Final = StateApi("DeleteShareGroupState", 0, "DeleteState", _same, ShareCoordinator.delete)
SUMMARY: Final = StateApi(
    "ReadShareGroupStateSummary",
    1,
    "ReadStateSummary",
    ReadEntry,
    _summarize,
    ("leader_epoch",),
    ("state_epoch", "leader_epoch", "start_offset", "delivery_complete_count"),
)
STATE_APIS: Final[Mapping[str, StateApi]] = {api.name: api for api in (INITIALIZE, READ, WRITE, DELETE, SUMMARY)}
"""The five requests by Kafka's names."""
