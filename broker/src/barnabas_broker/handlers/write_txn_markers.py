"""WriteTxnMarkers (27), v1 and v2: ends transactions in the partitions that this broker leads.

Transaction coordinators send WriteTxnMarkers, and so do tools that abort a hanging transaction (KIP-664). v2 adds the
transaction.version by which a marker's epoch is checked (KIP-1228). The response is sent when all in-sync replicas have
the markers.
"""

import asyncio
from typing import Final

from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_name import CONSUMER_OFFSETS

COMMIT_TIMEOUT_S: Final = 30
"""The seconds to wait for the in-sync replicas, as in Kafka; then the coordinator sends the marker again."""

_LED_ELSEWHERE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)

MarkerResult = WriteTxnMarkersResponse.WritableTxnMarkerResult
TopicResult = MarkerResult.WritableTxnMarkerTopicResult
PartitionResult = TopicResult.WritableTxnMarkerPartitionResult


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Append all markers, and return an error code for each partition, grouped by producer."""
    writing = _Writing(environment)
    try:
        async for wanted in writing.turn.over(request.markers):
            marker = Marker(
                wanted.producer_id, wanted.producer_epoch, wanted.coordinator_epoch, wanted.transaction_result
            )
            async for topic in writing.turn.over(wanted.topics):
                async for index in writing.turn.over(topic.partition_indexes):
                    writing.append(topic.name, index, marker, wanted.transaction_version)
        return WriteTxnMarkersResponse(markers=await writing.results())
    finally:
        writing.end()


def _told(error: ErrorCode) -> ErrorCode:
    """Convert an error of the group coordinator to the partition error that senders of markers expect."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error in _LED_ELSEWHERE else error


class _Writing:
    """The markers of one request, each with a future for its error code."""

    def __init__(self, environment: HandlerEnvironment) -> None:
        self.turn = environment.answers.turn()
        self._environment = environment
        self._codes: dict[int, dict[str, list[tuple[int, asyncio.Future[ErrorCode]]]]] = {}
        """The partition indexes, each with a future for the partition's error code, by producer id, then by topic."""
        self._timer = environment.timers.call_later(COMMIT_TIMEOUT_S, self._expire)

    def append(self, topic: str, index: int, marker: Marker, transaction_version: int) -> None:
        """Append one marker to one partition; the group coordinator does so for `__consumer_offsets`."""
        code: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        self._codes.setdefault(marker.producer_id, {}).setdefault(topic, []).append((index, code))

        def done(error: ApiError | None) -> None:
            if not code.done():
                code.set_result(ErrorCode.NONE if error is None else error.code)

        if topic == CONSUMER_OFFSETS:
            self._environment.groups.end_transaction(
                index, marker, transaction_version, lambda error: done(ApiError(_told(error)) if error else None)
            )
            return
        try:
            with self._environment.replicas.failures.using(topic, index) as partition:
                partition.check_writable(all_replicas=True)
                offset = partition.append_marker(marker, transaction_version, self._environment.clock.now_ms())
                partition.waits.wait(offset + 1, done, partition.log.high_watermark)
        except ApiError as error:
            done(error)

    async def results(self) -> list[MarkerResult]:
        """Wait until all markers are committed or the timeout is over, and return the results."""
        return [
            MarkerResult(
                producer_id=producer_id,
                topics=[
                    TopicResult(
                        name=name,
                        partitions=[
                            PartitionResult(partition_index=index, error_code=await code) for index, code in codes
                        ],
                    )
                    for name, codes in topics.items()
                ],
            )
            for producer_id, topics in self._codes.items()
        ]

    def _expire(self) -> None:
        for topics in self._codes.values():
            for codes in topics.values():
                for _, code in codes:
                    if not code.done():
                        code.set_result(ErrorCode.REQUEST_TIMED_OUT)

    def end(self) -> None:
        """Cancel the timer that sets the error REQUEST_TIMED_OUT for uncommitted markers."""
        self._timer.cancel()
