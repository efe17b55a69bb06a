"""The sender of transaction markers, which sends markers to the partition leaders until each partition has its marker.

The markers of a partition wait in its lane (`leader_queues`), which is

- *placed* while the image names a leader: the next request to this broker has them.
- *parked* while there is no leader, and for a while after the leader did not write a marker. A parked lane waits for
  another state of its partition in the image, or for the end of its pause. After a failure the lane sends one marker
  only, until its leader writes one again.
- *withdrawn* while the image lacks the partition: the image first catches up with the metadata store. If the partition
  was deleted then, its markers count as written; otherwise the lane is parked.

A marker leaves the lanes when a leader has written it, or has refused it with a final error, which is logged, when its
partition was deleted, or when this broker does not coordinate the transaction any more.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from barnabas_broker.coordinators.runtime.peer_requests import Exchange, LinkEnvironment
from barnabas_broker.coordinators.transactions.leader_queues import AT_ONCE_MAX, Deleted, Lane, LeaderQueues, state_of
from barnabas_broker.coordinators.transactions.transaction import TransactionCounts
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_core.clock import Timers
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicPartition

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


@dataclass(slots=True, eq=False)
class Ending:
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
        names.update(self._image.tombstones[each].name for each in change.buried if each in self._image.tombstones)
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
