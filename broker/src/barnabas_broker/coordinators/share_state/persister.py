"""The persister stores and reads the state of share-partitions at their share coordinators, on this or other brokers.

A group coordinator initializes, deletes and summarizes the state of its share groups. The leader of a share-partition
reads the state when it begins, and writes it with each change. What is asked of one broker for one group in a turn of
the event loop goes into one request.

The share coordinator of one broker passes each request to the shard of the share-partition. Its `runtime` knows the
partitions of `__share_group_state` that this broker leads. All calls come from the event-loop thread, and none of
them blocks.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import msgspec

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PipelinedRequests
from barnabas_broker.coordinators.runtime.shard import Runtime, RuntimeEnvironment
from barnabas_broker.coordinators.share_state.shard import OnOutcome, ShareStateEnvironment, ShareStateShard
from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    StateBatch,
    WriteEntry,
)
from barnabas_broker.metadata.documents import ImageChange
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.wire.messages import message_class
from barnabas_core.clock import Cancellable, Timers
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn, slices
from barnabas_core.topic_partition import SHARE_GROUP_STATE, TopicIdPartition, coordinator_partition


class ShareCoordinator:
    """The coordinator of the share-partitions whose partition of __share_group_state this broker leads.

    Each method calls `answer` with the outcome for one share-partition, perhaps before the method returns.
    """

    def __init__(
        self, environment: ShareStateEnvironment, of_runtime: RuntimeEnvironment, partition_count: int
    ) -> None:
        self._config = environment.config
        self.counts = environment.counts
        self.runtime = Runtime(
            of_runtime, partition_count, partial(ShareStateShard, environment), ShareStateShard.serve
        )

    def start(self) -> None:
        """Schedule the snapshots of cold share-partitions, and the pruning of the topic."""
        cold_ms = self._config.share_coordinator_cold_partition_snapshot_interval_ms
        prune_ms = self._config.share_coordinator_state_topic_prune_interval_ms
        self.runtime.sweep_every(cold_ms / 1000, ShareStateShard.snapshot_cold)
        self.runtime.sweep_every(prune_ms / 1000, ShareStateShard.prune)

    def on_topics_deleted(self, topics: Collection[UUID]) -> None:
        """Delete the states of topics that were deleted."""
        self.runtime.sweep(lambda shard: shard.forget(topics))

    def initialize(self, group_id: str, entry: InitializeEntry, answer: OnOutcome) -> None:
        """Store the state epoch and start offset of a share-partition, which forgets its earlier state."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.initialize(key, entry, answer), answer)

    def read(self, group_id: str, entry: ReadEntry, answer: OnOutcome) -> None:
        """Read the state of a share-partition for its leader, and fence leaders with a lower leader epoch."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.read(key, entry, answer), answer)

    def write(self, group_id: str, entry: WriteEntry, answer: OnOutcome) -> None:
        """Store changed batches of a share-partition."""
        self._ask(group_id, entry.partition, lambda shard, key: shard.write(key, entry, answer), answer)

    def delete(self, group_id: str, partition: TopicIdPartition, answer: OnOutcome) -> None:
        """Delete the state of a share-partition."""
        self._ask(group_id, partition, lambda shard, key: shard.delete(key, answer), answer)

    def read_summary(self, group_id: str, partition: TopicIdPartition, answer: OnOutcome) -> None:
        """Read the epochs, the start offset and the delivery complete count of a share-partition."""
        self._ask(group_id, partition, lambda shard, key: answer(shard.summary(key)), answer)

    def _ask(
        self,
        group_id: str,
        partition: TopicIdPartition,
        ask: Callable[[ShareStateShard, SharePartitionKey], object],
        answer: OnOutcome,
    ) -> None:
        key = SharePartitionKey(group_id, *partition)
        try:
            shard = self.runtime.find(key.name)
        except ApiError as error:
            answer(ShareOutcome(error.code, error.message))
        else:
            ask(shard, key)


_NO_TOPIC: Final = UUID(int=0)

Entry = InitializeEntry | ReadEntry | WriteEntry | TopicIdPartition


def partition_of(entry: Entry) -> TopicIdPartition:
    """Return the topic and partition of an entry."""
    return entry if isinstance(entry, TopicIdPartition) else entry.partition


class StateApi(msgspec.Struct, frozen=True):
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


_TRIES: Final = 5
_FIRST_PAUSE_S: Final = 1.0
_PAUSE_S_MAX: Final = 30.0
_RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_AT_ONCE_MAX: Final = 64
"""The number of share-partitions of one call that are asked for in the turn of the call; more take turns."""
_ENTRIES_MAX: Final = 500
"""The largest number of share-partitions in a request to another broker."""
_BATCHES_MAX: Final = 2_000
"""The largest number of batches in a request to another broker; a single share-partition may have more."""

Outcomes = Mapping[TopicIdPartition, ShareOutcome]
OnOutcomes = Callable[[Outcomes], object]


class _Task(msgspec.Struct, eq=False):
    """The request for one share-partition, until it has its outcome."""

    api: StateApi
    group_id: str
    name: str
    entry: Entry
    settle: Callable[[TopicIdPartition, ShareOutcome], object]
    tries: int = 0
    asked: int = NO_LEADER
    """The broker that was asked last."""
    pause: Cancellable | None = None
    """The timer of the next try, while the task waits for it."""


class SharePersister:
    """The persister of this broker.

    Each method calls `answer` once, with an outcome for each share-partition of the request, perhaps before the method
    returns. Passing errors are retried: five tries, with pauses of 1 s to 30 s, and at once when another broker becomes
    the coordinator. An error that remains is one of COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, NETWORK_EXCEPTION and REQUEST_TIMED_OUT;
    FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST and UNKNOWN_SERVER_ERROR are never retried, and neither is
    UNKNOWN_TOPIC_OR_PARTITION of a topic that was deleted.
    """

    def __init__(
        self,
        broker_id: int,
        environment: LinkEnvironment,
        timers: Timers,
        image: MetadataImage,
        coordinator: ShareCoordinator,
        create_topic: Callable[[], Awaitable[object]],
    ) -> None:
        """Create the persister; `create_topic` creates the state topic, and may raise ApiError."""
        self._broker_id = broker_id
        self._spawn = environment.spawn
        self._clock = environment.clock
        self._timers = timers
        self._image = image
        self._coordinator = coordinator
        self._create_topic = create_topic
        self._peers = PipelinedRequests(environment)
        self._unsent: dict[tuple[int, str, str], list[_Task]] = {}
        """The tasks that the next requests take, by broker, API and group."""
        self._paused: dict[_Task, None] = {}
        self._sent: dict[_Task, None] = {}
        self._topicless: list[_Task] = []
        """The tasks that wait until the state topic exists."""
        self._is_closed = False
        image.subscribe(self._image_changed)

    def close(self) -> None:
        """Close the connections to other brokers, and try nothing again."""
        self._is_closed = True
        self._peers.close()
        for task in self._paused:
            if task.pause is not None:
                task.pause.cancel()
        self._paused.clear()

    def initialize(self, group_id: str, entries: Sequence[InitializeEntry], answer: OnOutcomes) -> None:
        """Store the state epoch and start offset of share-partitions, which forgets their earlier state."""
        self._start(INITIALIZE, group_id, entries, answer)

    def read(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read the state of share-partitions as their leader, and fence leaders with a lower leader epoch."""
        self._start(READ, group_id, entries, answer)

    def write(self, group_id: str, entries: Sequence[WriteEntry], answer: OnOutcomes) -> None:
        """Store changed batches of share-partitions as their leader."""
        self._start(WRITE, group_id, entries, answer)

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition], answer: OnOutcomes) -> None:
        """Delete the state of share-partitions; NONE if they have none."""
        self._start(DELETE, group_id, partitions, answer)

    def read_summary(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        """Read the epochs, the start offset and the delivery complete count of share-partitions, without side effect.

        The leader epoch of an entry has no effect, as in Kafka.
        """
        self._start(SUMMARY, group_id, entries, answer)

    def _start(self, api: StateApi, group_id: str, entries: Sequence[Entry], answer: OnOutcomes) -> None:
        outcomes: dict[TopicIdPartition, ShareOutcome] = {}
        left = len(entries)

        def settle(partition: TopicIdPartition, outcome: ShareOutcome) -> None:
            nonlocal left
            outcomes[partition] = outcome
            left -= 1
            if not left:
                answer(outcomes)

        def tasks() -> Iterator[_Task]:
            for entry in entries:
                key = SharePartitionKey(group_id, *partition_of(entry))
                yield _Task(api, group_id, key.name, entry, settle)

        if not entries:
            answer(outcomes)
        elif len(entries) <= _AT_ONCE_MAX:
            for task in tasks():
                self._route(task)
        else:
            self._spawn(self._route_all(tasks()))

    async def _route_all(self, tasks: Iterable[_Task]) -> None:
        turn = FairTurn(self._clock)
        for task in tasks:
            await turn.give_way()
            self._route(task)

    def _route(self, task: _Task) -> None:
        leader = self._leader_of(task)
        task.tries += 1
        task.asked = NO_LEADER if leader is None else leader
        if leader is None:
            self._topicless.append(task)
            if len(self._topicless) == 1:
                self._spawn(self._make_topic())
        elif leader == NO_LEADER:
            self._done(task, ShareOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{SHARE_GROUP_STATE} has no leader"))
        elif leader == self._broker_id:
            task.api.ask(self._coordinator, task.group_id, task.entry, lambda outcome: self._done(task, outcome))
        else:
            self._sent[task] = None
            if not self._unsent:
                self._timers.call_soon(self._send)
            self._unsent.setdefault((leader, task.api.name, task.group_id), []).append(task)

    def _leader_of(self, task: _Task) -> int | None:
        """Return the broker that coordinates the share-partition, NO_LEADER, or None if the state topic is missing."""
        document = self._image.topics.get(SHARE_GROUP_STATE)
        if document is None:
            return None
        return document.partitions[coordinator_partition(task.name, len(document.partitions))].leader

    async def _make_topic(self) -> None:
        """Create the state topic, and let the waiting tasks end or try again."""
        outcome = ShareOutcome(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the topic {SHARE_GROUP_STATE} does not exist")
        try:
            await self._create_topic()
        except ApiError as error:
            outcome = outcome._replace(message=f"{outcome.message}: {error}")
        waiting, self._topicless = self._topicless, []
        await self._end_all(waiting, dict.fromkeys(waiting, outcome))

    def _send(self) -> None:
        unsent, self._unsent = self._unsent, {}
        for (leader, _, group_id), tasks in unsent.items():
            for some in slices(tasks, _weight, _ENTRIES_MAX, _BATCHES_MAX):
                self._spawn(self._ask(leader, group_id, some))

    async def _ask(self, leader: int, group_id: str, tasks: Sequence[_Task]) -> None:
        api = tasks[0].api
        response = await self._peers.ask(leader, api.exchange, api.request(group_id, [task.entry for task in tasks]))
        found = {} if response is None else dict(api.outcomes(response))
        lost = ShareOutcome(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} did not answer")
        outcomes = {task: found.get(partition_of(task.entry), lost) for task in tasks}
        await self._end_all([task for task in tasks if task.asked == leader and task in self._sent], outcomes)

    async def _end_all(self, tasks: Collection[_Task], outcomes: Mapping[_Task, ShareOutcome]) -> None:
        turn = FairTurn(self._clock)
        for task in tasks:
            await turn.give_way()
            self._sent.pop(task, None)
            self._done(task, outcomes[task])

    def _done(self, task: _Task, outcome: ShareOutcome) -> None:
        if outcome.error not in _RETRIED or task.tries >= _TRIES or self._is_deleted(task, outcome):
            task.settle(partition_of(task.entry), outcome)
        elif self._has_moved(task):
            self._route(task)
        elif not self._is_closed:
            pause_s = min(_FIRST_PAUSE_S * 2 ** (task.tries - 1), _PAUSE_S_MAX)
            self._paused[task] = None
            task.pause = self._timers.call_later(pause_s, lambda: self._go_on(task))

    def _is_deleted(self, task: _Task, outcome: ShareOutcome) -> bool:
        is_unknown = outcome.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown and partition_of(task.entry).topic_id in self._image.tombstones

    def _go_on(self, task: _Task) -> None:
        if task.pause is not None and task in self._paused:
            del self._paused[task]
            task.pause.cancel()
            self._route(task)

    def _image_changed(self, change: ImageChange) -> None:
        """Ask the new coordinators what other brokers were asked that do not coordinate any more."""
        if any(each.name == SHARE_GROUP_STATE for each in (*change.created, *change.changed)):
            self._spawn(self._follow())

    async def _follow(self) -> None:
        turn = FairTurn(self._clock)
        for task in [*self._paused, *self._sent]:
            await turn.give_way()
            if self._has_moved(task) and task in self._sent:
                del self._sent[task]
                self._route(task)
            elif self._has_moved(task):
                self._go_on(task)

    def _has_moved(self, task: _Task) -> bool:
        """True if another broker coordinates the share-partition than the one that was asked last."""
        return self._leader_of(task) not in (None, NO_LEADER, task.asked)


def _weight(task: _Task) -> int:
    return len(task.entry.batches) if isinstance(task.entry, WriteEntry) else 0
