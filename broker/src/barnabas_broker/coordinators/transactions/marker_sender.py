"""The sender of transaction markers, which sends markers to the partition leaders until each partition has its marker.

The markers of a partition wait in its lane, which is

- *placed* while the image names a leader: the next request to this broker has them.
- *parked* while there is no leader, and for a while after the leader did not write a marker. A parked lane waits for
  another state of its partition in the image, or for the end of its pause. After a failure the lane sends one marker
  only, until its leader writes one again.
- *withdrawn* while the image lacks the partition: the image first catches up with the metadata store. If the partition
  was deleted then, its markers count as written; otherwise the lane is parked.

A marker leaves the lanes when a leader has written it, or has refused it with a final error, which is logged, when its
partition was deleted, or when this broker does not coordinate the transaction any more.

The queues of items, such as transaction markers, for the leaders of partitions. The items of a partition wait in
its lane. A lane is in one of two states:

- *parked*: no request takes items from it, until `place` names a leader of the partition.
- *placed*: the next request to the leader takes items from it.

An item that a request has taken is in flight until the request has ended, or until `place` or `withdraw` takes the item
back because another broker leads the partition. So every item is in one lane, in one request, or with the sender. No
method takes longer if more items wait: lanes move as a whole, and requests are bounded.

A partition that the metadata image lacks need not be deleted. The metadata may be lost, or restored from an older
backup, and the image may be seconds behind the metadata store. Only a tombstone shows that a topic was deleted.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.coordinators.transactions.decisions import TransactionCounts
from barnabas_broker.metadata.documents import ImageChange, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import reported_ends, stray_topics
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TombstoneDocument
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_core.clock import Timers
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

_PARTITIONS_MAX: Final = 2_000
"""The number of partitions in a request, after which the request takes no further item."""
AT_ONCE_MAX: Final = 250
"""The maximum number of items of one lane in a request; handling their answers takes a turn of the event loop."""

ItemT = TypeVar("ItemT")
SentT = TypeVar("SentT", contravariant=True)


class Lane(Generic[ItemT]):
    """The items that wait for the leader of one partition."""

    __slots__ = ("at_once", "failures", "flight", "items", "state", "target")

    def __init__(self) -> None:
        self.items: deque[ItemT] = deque()
        self.target = NO_LEADER
        """The broker whose next request takes items from the lane; NO_LEADER while the lane is parked."""
        self.state: PartitionState | None = None
        """The state of the partition when the lane was last placed or parked."""
        self.flight: _Flight[ItemT] | None = None
        """The request that has items of this lane."""
        self.at_once = AT_ONCE_MAX
        """The maximum number of items that a request takes from the lane."""
        self.failures = 0
        """The number of requests in a row that failed for this lane; the owner of the queues counts them."""


class _Flight(Generic[ItemT]):
    """The items of one request that is under way to a broker."""

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.portions: dict[TopicPartition, list[ItemT]] = {}


class Sender(Protocol[SentT]):
    """The owner of the queues, which makes the requests and handles the answers."""

    @property
    def exchange(self) -> Exchange:
        """The request and the response."""
        ...

    def weight(self, item: SentT) -> int:
        """Return the number of partitions that an item adds to a request."""
        ...

    def request(self, portions: Mapping[TopicPartition, Sequence[SentT]]) -> Any:
        """Return one request with all the given items; None if none of them has to be sent."""
        ...

    def codes(self, sent: Sequence[SentT], answer: Any | None) -> Any:
        """Return the error codes in the response to a request with the items `sent`; without a response it is None."""
        ...

    def answered(self, broker_id: int, partition: TopicPartition, items: Sequence[SentT], codes: Any) -> None:
        """Handle the response of a broker for the items of one partition, which are in no lane any more."""
        ...


class LeaderQueues(Generic[ItemT]):
    """The lanes of all partitions, and the requests to their leaders, one at a time for each broker."""

    def __init__(self, environment: LinkEnvironment, sender: Sender[ItemT]) -> None:
        self._spawn = environment.spawn
        self._clock = environment.clock
        self._sender = sender
        self._peers = PeerRequests(environment, sender.exchange)
        self._lanes: dict[str, dict[int, Lane[ItemT]]] = {}
        """The lanes that have items, waiting or in flight, by topic and partition number."""
        self._placed: dict[int, dict[TopicPartition, Lane[ItemT]]] = {}
        """The placed lanes from which requests to a broker take items, the next one first, by broker id."""
        self._is_closed = False

    def lane(self, partition: TopicPartition) -> Lane[ItemT] | None:
        """Return the lane of a partition; None if the partition has no items."""
        return self._lanes.get(partition.topic, {}).get(partition.partition)

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic that have items."""
        return [TopicPartition(topic, number) for number in self._lanes.get(topic, ())]

    def put(self, partition: TopicPartition, items: Iterable[ItemT]) -> Lane[ItemT]:
        """Add items to the lane of their partition, and return the lane. A new lane is parked."""
        lane = self._lanes.setdefault(partition.topic, {}).setdefault(partition.partition, Lane())
        lane.items.extend(items)
        self._queue(partition, lane)
        return lane

    def place(self, partition: TopicPartition, state: PartitionState | None) -> None:
        """Let requests to the leader in `state` take items of the partition; park the lane if there is no leader.

        Items in flight to another broker are taken back.
        """
        lane, leader = self.lane(partition), NO_LEADER if state is None else state.leader
        if lane is None:
            return
        lane.state = state
        if leader != lane.target:
            self._move(partition, lane, leader)
            self._queue(partition, lane)

    def park(self, partition: TopicPartition) -> None:
        """Let no request take items of the partition until the lane is placed again."""
        lane = self.lane(partition)
        if lane is not None:
            self._move(partition, lane, NO_LEADER)

    def withdraw(self, partition: TopicPartition) -> deque[ItemT]:
        """Remove the lane of a partition, and return its items, also those in flight."""
        lane = self.lane(partition)
        if lane is None:
            return deque()
        self._move(partition, lane, NO_LEADER)
        items, lane.items = lane.items, deque()
        self._remove_if_empty(partition, lane)
        return items

    def close(self) -> None:
        """Close the connections to other brokers, and send no further request."""
        self._is_closed = True
        self._peers.close()

    def _move(self, partition: TopicPartition, lane: Lane[ItemT], leader: int) -> None:
        """Set the leader of a lane, and take back its items in flight."""
        self._placed.get(lane.target, {}).pop(partition, None)
        lane.target, flight, lane.flight = leader, lane.flight, None
        if flight is not None:
            lane.items.extendleft(reversed(flight.portions.pop(partition)))
            if not flight.portions:
                self._peers.abandon(flight.broker_id)

    def _queue(self, partition: TopicPartition, lane: Lane[ItemT]) -> None:
        """Let the requests to the lane's leader take items of the lane, if it has a leader, and no items in flight."""
        if lane.target == NO_LEADER or lane.flight is not None or not lane.items or self._is_closed:
            return
        placed = self._placed.get(lane.target)
        if placed is None:
            placed = self._placed[lane.target] = {}
            self._spawn(self._ask_until_empty(lane.target, placed))
        placed[partition] = lane

    def _remove_if_empty(self, partition: TopicPartition, lane: Lane[ItemT]) -> None:
        if lane.items or lane.flight is not None or self.lane(partition) is not lane:
            return
        lanes = self._lanes[partition.topic]
        del lanes[partition.partition]
        if not lanes:
            del self._lanes[partition.topic]

    async def _ask_until_empty(self, broker_id: int, placed: dict[TopicPartition, Lane[ItemT]]) -> None:
        try:
            while placed and not self._is_closed:
                await self._ask(self._take_off(broker_id, placed))
        finally:
            del self._placed[broker_id]

    def _take_off(self, broker_id: int, placed: dict[TopicPartition, Lane[ItemT]]) -> _Flight[ItemT]:
        """Return the next items for a broker: those of the lanes that have waited longest."""
        flight, room = _Flight[ItemT](broker_id), _PARTITIONS_MAX
        while placed and room > 0:
            partition = next(iter(placed))
            lane, items = placed.pop(partition), flight.portions.setdefault(partition, [])
            lane.flight = flight
            while lane.items and room > 0 and len(items) < lane.at_once:
                items.append(lane.items.popleft())
                room -= self._sender.weight(items[-1])
        return flight

    async def _ask(self, flight: _Flight[ItemT]) -> None:
        sent = [item for items in flight.portions.values() for item in items]
        request = self._sender.request(flight.portions)
        answer = None if request is None else await self._peers.ask(flight.broker_id, request)
        landed = [(partition, self._land(partition), items) for partition, items in flight.portions.items()]
        codes, turn = self._sender.codes(sent, answer), FairTurn(self._clock)
        for partition, lane, items in landed:
            await turn.give_way()
            self._sender.answered(flight.broker_id, partition, items, codes)
            self._remove_if_empty(partition, lane)

    def _land(self, partition: TopicPartition) -> Lane[ItemT]:
        lane = self._lanes[partition.topic][partition.partition]
        lane.flight = None
        self._queue(partition, lane)
        return lane


def state_of(image: MetadataImage, partition: TopicPartition) -> PartitionState | None:
    """Return the state of the partition in the image, or None if the image lacks the partition."""
    document = image.topics.get(partition.topic)
    if document is None or not 0 <= partition.partition < len(document.partitions):
        return None
    return document.partitions[partition.partition]


class Deleted:
    """The partitions that were deleted, as a metadata image shows them now.

    The image must be at least as new as the transactions in question: an older image may have the tombstone of a topic,
    and lack the next topic of the same name, which the transaction has written to.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._tombstones: dict[str, list[TombstoneDocument]] = {}
        for tombstone in image.tombstones.values():
            self._tombstones.setdefault(tombstone.name, []).append(tombstone)
        self._strays = {each.name for each in stray_topics(image)}

    def has(self, partition: TopicPartition) -> bool:
        """True if the partition was deleted: a topic of that name with such a partition has a tombstone.

        The partition may exist if the metadata of a topic of that name, or of the partition itself, may be lost.
        """
        topic, number = partition
        held = any(each.partitions > number or not each.partitions for each in self._tombstones.get(topic, ()))
        return held and state_of(self._image, partition) is None and not self._may_be_lost(topic, number)

    def _may_be_lost(self, topic: str, number: int) -> bool:
        image, document = self._image, self._image.topics.get(topic)
        if document is not None:
            return number in reported_ends(image).get(document.topic_id, {})
        return topic in self._strays or topic in image.incomplete or topic_key(topic) in image.unreadable


_logger = logging.getLogger(__name__)

_PAUSE_S: Final = 0.1
"""The pause in seconds after a leader did not write a marker; it doubles with each further failure."""
_PAUSE_S_MAX: Final = 2.0

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
REFUSED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The final errors, after which the sender does not send a marker again."""

WantedMarker = WriteTxnMarkersRequest.WritableTxnMarker
WantedTopic = WantedMarker.WritableTxnMarkerTopic
MarkerCodes = Mapping[tuple[int, TopicPartition], ErrorCode]
"""The error codes of a response, by producer id and partition."""


class Ending(msgspec.Struct, eq=False):
    """A transaction whose markers are being sent."""

    marker: Marker
    transaction_version: int
    missing: int
    """The number of the partitions of the transaction that have no marker yet."""
    is_wanted: Callable[[], bool]
    done: Callable[[], object]

    def has_one_more(self) -> None:
        """Count a partition that needs no marker any more; call `done` after the last one."""
        self.missing -= 1
        if not self.missing and self.is_wanted():
            self.done()


class MarkerSender:
    """The sender of markers to the partition leaders in the metadata image.

    `catch_up` waits until the image is as new as the metadata store was at the call.
    """

    exchange = Exchange("WriteTxnMarkersResponse", 2)

    def __init__(
        self,
        environment: LinkEnvironment,
        image: MetadataImage,
        timers: Timers,
        counts: TransactionCounts,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._image = image
        self._timers = timers
        self._counts = counts
        self._catch_up = catch_up
        self._spawn = environment.spawn
        self._clock = environment.clock
        self._absent: dict[TopicPartition, None] = {}
        """The partitions that the image lacks, until their lanes are withdrawn."""
        self._is_checking = False
        self.queues: LeaderQueues[Ending] = LeaderQueues(environment, self)
        image.subscribe(self._image_changed)

    def send(
        self,
        marker: Marker,
        transaction_version: int,
        partitions: Collection[TopicPartition],
        is_wanted: Callable[[], bool],
        done: Callable[[], object],
    ) -> None:
        """Send a marker to all partitions, and retry while `is_wanted` returns True.

        `done` is called when no partition needs the marker any more.
        """
        if not partitions:
            done()
            return
        ending = Ending(marker, transaction_version, len(partitions), is_wanted, done)
        for each in partitions:
            is_new = self.queues.lane(each) is None
            lane = self.queues.put(each, (ending,))
            if is_new:
                self._place(each)
            elif not lane.items[0].is_wanted():  # Otherwise a parked lane would keep these markers.
                lane.items.popleft()

    def _place(self, partition: TopicPartition) -> None:
        """Place the lane of a partition at its leader; park it without a leader."""
        state = state_of(self._image, partition)
        self.queues.place(partition, state)
        if state is None:
            self._absent[partition] = None
            if not self._is_checking:
                self._is_checking = True
                self._spawn(self._check_absent())

    def _image_changed(self, change: ImageChange) -> None:
        """Place the lanes again whose partitions have another state, or may be deleted now."""
        names = {document.name for document in (*change.created, *change.changed, *change.deleted)}
        names.update(self._image.tombstones[each].name for each in change.tombstones if each in self._image.tombstones)
        for name in names:
            for partition in self.queues.partitions(name):
                lane, state = self.queues.lane(partition), state_of(self._image, partition)
                if lane is not None and (state is None or lane.state != state):
                    lane.failures, lane.at_once = 0, AT_ONCE_MAX
                    self._place(partition)

    async def _check_absent(self) -> None:
        """End the wait for partitions that were deleted, once the image is as new as their markers."""
        try:
            while self._absent:
                absent, self._absent = self._absent, {}
                withdrawn = [
                    (each, self.queues.withdraw(each)) for each in absent if state_of(self._image, each) is None
                ]
                await self._catch_up()
                deleted, turn = Deleted(self._image), FairTurn(self._clock)
                for partition, endings in withdrawn:
                    if deleted.has(partition):
                        async for ending in turn.over(endings):
                            ending.has_one_more()
                    elif endings:
                        self._put_back(partition, endings)
        finally:
            self._is_checking = False

    def _put_back(self, partition: TopicPartition, endings: Iterable[Ending]) -> None:
        self.queues.put(partition, endings)
        state = state_of(self._image, partition)
        self.queues.place(partition, state)
        if state is None:
            _logger.warning(
                "transactions cannot end before the metadata has the partition %s; if its topic was lost, run "
                "`barnabas restore-metadata`; if the topic was deleted, create a topic with this name and partition",
                partition,
            )

    def weight(self, item: Ending) -> int:  # noqa: ARG002  # Each item is the marker of one partition.
        """Return 1: a lane has an item for each partition of a transaction."""
        return 1

    def request(self, portions: Mapping[TopicPartition, Sequence[Ending]]) -> WriteTxnMarkersRequest | None:
        """Return one request with the markers for a broker, except those for which `is_wanted` returns False."""
        partitions: dict[Ending, dict[str, list[int]]] = {}
        for (topic, number), endings in portions.items():
            for ending in endings:
                if ending.is_wanted():
                    partitions.setdefault(ending, {}).setdefault(topic, []).append(number)
        if not partitions:
            return None
        return WriteTxnMarkersRequest(markers=[_wanted(ending, topics) for ending, topics in partitions.items()])

    def codes(self, sent: Sequence[Ending], answer: WriteTxnMarkersResponse | None) -> MarkerCodes:  # noqa: ARG002
        """Return the error codes of a response."""
        if answer is None:
            return {}
        return {
            (marker.producer_id, TopicPartition(topic.name, each.partition_index)): ErrorCode(each.error_code)
            for marker in answer.markers
            for topic in marker.topics
            for each in topic.partitions
        }

    def answered(self, broker_id: int, partition: TopicPartition, items: Sequence[Ending], codes: MarkerCodes) -> None:
        """Count the markers that are written; let the others wait for another attempt."""
        wanted = [ending for ending in items if ending.is_wanted()]
        missing = [ending for ending in wanted if not self._is_over(ending, partition, codes)]
        if missing:
            lane = self.queues.put(partition, missing)
            if lane.target in (broker_id, NO_LEADER):
                self._pause(partition, lane, is_first=len(missing) < len(wanted))
            return
        lane_left = self.queues.lane(partition)
        if lane_left is not None:
            lane_left.failures, lane_left.at_once = 0, AT_ONCE_MAX

    def _pause(self, partition: TopicPartition, lane: Lane[Ending], *, is_first: bool) -> None:
        lane.failures = 1 if is_first else lane.failures + 1
        lane.at_once = AT_ONCE_MAX if is_first else 1
        self.queues.park(partition)
        pause_s = min(_PAUSE_S * 2 ** min(lane.failures - 1, 10), _PAUSE_S_MAX)
        self._timers.call_later(pause_s, partial(self._end_pause, partition, lane))

    def _end_pause(self, partition: TopicPartition, lane: Lane[Ending]) -> None:
        if self.queues.lane(partition) is lane and lane.target == NO_LEADER:
            self._place(partition)

    def _is_over(self, ending: Ending, partition: TopicPartition, codes: MarkerCodes) -> bool:
        """Count the marker if it is written or refused for ever; return False if it must be sent again."""
        code = codes.get((ending.marker.producer_id, partition), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if code in REFUSED:
            self._counts.refused_markers[code] += 1
            message = "the leader of %s refuses the marker %s with %s; the transaction ends without this marker"
            _logger.error(message, partition, ending.marker, code.name)
        is_over = code in _WRITTEN or code in REFUSED
        if is_over:
            ending.has_one_more()
        return is_over


def _wanted(ending: Ending, topics: Mapping[str, list[int]]) -> Any:
    marker = ending.marker
    return WantedMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WantedTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=ending.transaction_version,
    )
