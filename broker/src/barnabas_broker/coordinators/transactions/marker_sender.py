"""The sender of transaction markers, which sends markers to the partition leaders until each partition has its marker.

All markers for one broker share its next request. The sender retries until a leader has written the marker, the
partition has been deleted, or the leader has refused the marker with a final error, which is logged.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.coordinators.transactions.broker_queues import BrokerQueues, LinkEnvironment
from barnabas_broker.coordinators.transactions.transaction import TransactionCounts
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_broker.wire.transaction_markers import Marker
from barnabas_core.clock import Timers
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.1

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})
REFUSED: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The final errors, after which the sender does not send a marker again."""

WantedMarker = WriteTxnMarkersRequest.WritableTxnMarker
WantedTopic = WantedMarker.WritableTxnMarkerTopic


@dataclass(slots=True, eq=False)
class Ending:
    """A transaction whose markers are being sent."""

    marker: Marker
    transaction_version: int
    missing: set[TopicPartition]
    """The partitions of the transaction that have no marker yet."""
    is_wanted: Callable[[], bool]
    done: Callable[[], object]


class _Item(NamedTuple):
    """A marker for those partitions of a transaction that one broker leads."""

    ending: Ending
    partitions: Collection[TopicPartition]


class MarkerSender:
    """The sender of markers to the partition leaders in the metadata image."""

    response = "WriteTxnMarkersResponse"
    version = 2

    def __init__(
        self, environment: LinkEnvironment, image: MetadataImage, timers: Timers, counts: TransactionCounts
    ) -> None:
        self._image = image
        self._timers = timers
        self._counts = counts
        self.queues: BrokerQueues[_Item] = BrokerQueues(environment, self)

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
        self._route(Ending(marker, transaction_version, set(partitions), is_wanted, done), partitions)

    def _route(self, ending: Ending, partitions: Collection[TopicPartition]) -> None:
        if not ending.is_wanted():
            return
        leaders: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader(partition)
            if leader is None:
                ending.missing.discard(partition)
            else:
                leaders.setdefault(leader, []).append(partition)
        self._retry(ending, leaders.pop(-1, ()))
        for leader, led in leaders.items():
            self.queues.put(leader, _Item(ending, led))
        if not ending.missing:
            ending.done()

    def _leader(self, partition: TopicPartition) -> int | None:
        """Return the id of the partition's leader, -1 if there is no leader, None if the partition was deleted."""
        document = self._image.topics.get(partition.topic)
        if document is None or partition.partition >= len(document.partitions):
            return None
        return document.partitions[partition.partition].leader

    def _retry(self, ending: Ending, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._timers.call_later(_RETRY_S, partial(self._route, ending, partitions))

    def request(self, items: Sequence[_Item]) -> WriteTxnMarkersRequest:
        """Return one request with the markers for a broker, except those for which `is_wanted` returns False."""
        return WriteTxnMarkersRequest(markers=[_wanted(*item) for item in items if item.ending.is_wanted()])

    def answered(self, items: Sequence[_Item], answer: WriteTxnMarkersResponse | None) -> None:
        """Record which partitions need no marker any more, and schedule another attempt for the remaining partitions.

        When no partition of a transaction needs a marker any more, the `done` of the transaction is called.
        """
        codes = {} if answer is None else _codes(answer)
        for ending, partitions in items:
            missing = [each for each in partitions if not self._is_over(ending, each, codes)]
            ending.missing.difference_update(set(partitions).difference(missing))
            self._retry(ending, missing)
            if not ending.missing and ending.is_wanted():
                ending.done()

    def _is_over(
        self, ending: Ending, partition: TopicPartition, codes: dict[tuple[int, TopicPartition], ErrorCode]
    ) -> bool:
        code = codes.get((ending.marker.producer_id, partition), ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if code in REFUSED:
            self._counts.refused_markers[code] += 1
            message = "the leader of %s refuses the marker %s with %s; the transaction ends without this marker"
            _logger.error(message, partition, ending.marker, code.name)
        return code in _WRITTEN or code in REFUSED


def _wanted(ending: Ending, partitions: Collection[TopicPartition]) -> Any:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    marker = ending.marker
    return WantedMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.is_commit,
        topics=[WantedTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=ending.transaction_version,
    )


def _codes(answer: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): ErrorCode(each.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
