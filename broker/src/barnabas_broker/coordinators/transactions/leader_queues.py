"""The queues of items, such as transaction markers, for the leaders of partitions.

The items of a partition wait in its lane. A lane is in one of two states:

- *parked*: no request takes items from it, until `place` names a leader of the partition.
- *placed*: the next request to the leader takes items from it.

An item that a request has taken is in flight until the request has ended, or until `place` or `withdraw` takes the item
back because another broker leads the partition. So every item is in one lane, in one request, or with the sender. No
method takes longer if more items wait: lanes move as a whole, and requests are bounded.

A partition that the metadata image lacks need not be deleted. The metadata may be lost, or restored from an older
backup, and the image may be seconds behind the metadata store. Only a tombstone shows that a topic was deleted.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment, PeerRequests
from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import reported_ends, stray_topics
from barnabas_broker.metadata.model import NO_LEADER, PartitionState, TombstoneDocument
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
