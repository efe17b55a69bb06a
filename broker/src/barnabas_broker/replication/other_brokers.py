"""The requests of replicas to other brokers, and the interface of the connections to them.

A broker answers the requests of a connection in order. `server.peer_link` implements the interface with sockets; tests
use a simulated network instead.

The end offsets of partitions that other brokers lead are requested with ListOffsets, as a consumer does. The lag of a
consumer group is computed from them, because a group may read partitions of any broker.

The controller gets reports about logs that failed, may have lost records, or are ahead of the metadata. One write is in
flight at a time, and the next write includes all later reports. A failed write is not retried, because the replica
manager repeats each report until the metadata reflects it.

A stopping broker waits until the other brokers know the new leaders. A client that connects to a stopped broker,
because another broker named it as a leader, retries the address with growing pauses (librdkafka's
reconnect.backoff.max.ms is 10 s). Kafka's controller delays a controlled shutdown for the same reason until all live
brokers have caught up with the change (KIP-631). Here the stopping broker sends Metadata requests to the other brokers
until their responses name the new leaders.

Then it waits until its clients have moved to the new leaders. A client whose connection ends reconnects at once if it
still takes this broker for a leader. On Kubernetes such a connection may go to a pod that no longer exists, so the
client waits for `socket.connection.setup.timeout.ms`, 30 s in librdkafka. A client that gets NOT_LEADER_OR_FOLLOWER
asks for the new leader instead. So a stopping broker answers requests until no client sends requests for partitions
that have moved.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import ListOffsetsRequest, MetadataRequest, MetadataResponse
from barnabas_core.clock import Clock, Timeout
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import in_turns
from barnabas_core.topic_partition import TopicPartition


class Link(Protocol):
    """A connection to one broker."""

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        """Send a framed request, once the connection is established.

        `on_response` is called with the response without its size, after `send` has returned. The callback may keep the
        memoryview, whose memory is not reused while the memoryview or a slice of it exists.
        """
        ...

    def close(self) -> None:
        """Close the connection, if it is open; no callback is called afterwards."""
        ...


class Links(Protocol):
    """The factory of connections to other brokers."""

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> Link:
        """Return a connection to the registered address of a broker.

        If the connection fails, `on_closed` is called once with the reason, after `open` or `send` has returned.
        """
        ...


class PeerNetwork(Links, Protocol):
    """The network between brokers."""

    async def refuses(self, broker_id: int) -> bool:
        """True if the machine of a broker refuses connections: no process listens at the registered address."""
        ...


class RequestLink:
    """A connection to one broker that sends one request at a time; the creator has to close it."""

    def __init__(self, links: Links, broker_id: int) -> None:
        self._answer: asyncio.Future[memoryview] | None = None
        self._reason: str | None = None
        self._link = links.open(broker_id, self._closed)

    @property
    def is_broken(self) -> bool:
        """True if the connection has failed."""
        return self._reason is not None

    async def ask(self, request: bytes | bytearray) -> memoryview:
        """Send a framed request; return the response without its size.

        Raises ConnectionError if the connection fails.
        """
        if self._reason is not None:
            raise ConnectionError(self._reason)
        asked: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        self._answer = asked
        # The future is done if the caller timed out and has not closed the connection yet.
        self._link.send(request, lambda answer: None if asked.done() else asked.set_result(answer))
        answer = await asked
        self._answer = None
        return answer

    def close(self) -> None:
        """Close the connection; a request that waits for its response raises ConnectionError."""
        self._link.close()
        self._closed("the connection was closed")
        if self._answer is not None and self._answer.done() and not self._answer.cancelled():
            self._answer.exception()  # The caller may be gone; asyncio then reports no exception that nobody retrieved.

    def _closed(self, reason: str) -> None:
        self._reason = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(reason))


log = logging.getLogger(__name__)

LIST_OFFSETS_VERSION: Final = 7
CONSUMER: Final = -1
LATEST: Final = -1
EARLIEST: Final = -2
ANSWER_S: Final = 2.0
"""The time limit in seconds for all requests to one broker; partitions without an answer by then are left out."""
PARTITIONS_A_REQUEST: Final = 500
"""The maximum number of partitions in a request, so that no event loop is blocked for more than a few ms."""

Topic = ListOffsetsRequest.ListOffsetsTopic


class _Kind(msgspec.Struct, frozen=True):
    """The offsets that are asked for."""

    timestamp: int
    isolation_level: int


class EndOffsets:
    """The sender of ListOffsets requests to the leaders of partitions; `broker_id` is the id of this broker."""

    def __init__(self, broker_id: int, links: Links, image: MetadataImage, timeout: Timeout) -> None:
        self._broker_id = broker_id
        self._links = links
        self._image = image
        self._timeout = timeout

    async def ask(
        self, partitions: Iterable[TopicPartition], end: int = LATEST, *, is_read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return the high watermarks of partitions, or their log start offsets if `end` is EARLIEST.

        With `is_read_committed`, the last stable offsets take the place of the high watermarks.

        The result lacks partitions without a leader, partitions that this broker leads, and partitions whose leader
        does not answer or returns an error.
        """
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        async for topic_partition in in_turns(partitions, PARTITIONS_A_REQUEST):
            leader = self._leader(topic_partition)
            if leader not in (NO_LEADER, self._broker_id):
                by_leader[leader].append(topic_partition)
        kind = _Kind(end, int(is_read_committed))
        answers = await asyncio.gather(*(self._ask_leader(leader, asked, kind) for leader, asked in by_leader.items()))
        return {topic_partition: offset for answer in answers for topic_partition, offset in answer.items()}

    def _leader(self, topic_partition: TopicPartition) -> int:
        document = self._image.topics.get(topic_partition.topic)
        if document is None or topic_partition.partition >= len(document.partitions):
            return NO_LEADER
        return document.partitions[topic_partition.partition].leader

    async def _ask_leader(
        self, leader_id: int, partitions: Sequence[TopicPartition], kind: _Kind
    ) -> Mapping[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        client_id = f"broker-{self._broker_id}-lag"
        request_link = RequestLink(self._links, leader_id)
        try:
            async with self._timeout(ANSWER_S):
                for begin in range(0, len(partitions), PARTITIONS_A_REQUEST):
                    request = _request(partitions[begin : begin + PARTITIONS_A_REQUEST], kind)
                    found |= _offsets_in(
                        await request_link.ask(encode_request(request, LIST_OFFSETS_VERSION, 0, client_id))
                    )
        except (TimeoutError, ConnectionError, MalformedRequest) as error:
            log.info("broker %d did not return the end offsets of its partitions: %r", leader_id, error)
        finally:
            request_link.close()
        return found


def _offsets_in(answer: memoryview) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, each.partition_index): each.offset
        for topic in decode_response("ListOffsetsResponse", LIST_OFFSETS_VERSION, answer).topics
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def _request(partitions: Sequence[TopicPartition], kind: _Kind) -> ListOffsetsRequest:
    by_topic: dict[str, list[Topic.ListOffsetsPartition]] = defaultdict(list)
    for name, number in partitions:
        wanted = Topic.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=kind.timestamp)
        by_topic[name].append(wanted)
    topics = [Topic(name=name, partitions=asked) for name, asked in by_topic.items()]
    return ListOffsetsRequest(replica_id=CONSUMER, isolation_level=kind.isolation_level, topics=topics)


Found = TypeVar("Found")
"""The content of a report about one partition.

The content is a `LogAhead` if the replica's log is ahead of the metadata, and otherwise the leader epoch in which the
replica's log failed or may lack records.
"""


class OfflineReports(Generic[Found]):
    """The queue of one kind of report, for example the reports about failed logs.

    The queue passes the reports to the function `resign`, which changes the metadata. For example, `resign` ends the
    leadership of this broker over the partitions whose logs failed.
    """

    def __init__(
        self,
        resign: Callable[[Mapping[TopicPartition, Found]], Awaitable[None]],
        spawn: Callable[[Coroutine[object, object, None]], object],
    ) -> None:
        self._resign = resign
        self._spawn = spawn
        self._found: dict[TopicPartition, Found] = {}
        self._writes = False

    def propose(self, found: Mapping[TopicPartition, Found]) -> None:
        """Queue reports about logs of partitions, and write them to the metadata unless a write is in flight."""
        self._found.update(found)
        if not self._writes:
            self._writes = True
            self._spawn(self._write())

    async def _write(self) -> None:
        try:
            while self._found:
                found, self._found = self._found, {}
                await self._resign(found)
        finally:
            self._writes = False


METADATA_VERSION: Final = 8
"""The version of the Metadata requests; responses of version 7 and higher have leader epochs."""
NEWS_S: Final = 3.0
"""The maximum wait in seconds for another broker to learn the new leaders."""
PAUSE_S: Final = 0.05
"""The pause in seconds between two Metadata requests to a broker.

On Kubernetes, a broker learns new leaders within 0.1 to 0.2 s.
"""
TOPICS_A_REQUEST: Final = 200
"""The maximum number of topics in a Metadata request; a broker needs a few milliseconds to answer for so many."""

ExpectedEpochs = Mapping[TopicPartition, int]


class LeaderPropagation:
    """The wait for other brokers to learn the new leaders; `broker_id` is the id of this broker."""

    def __init__(
        self,
        broker_id: int,
        links: Links,
        image: MetadataImage,
        sleep: Callable[[float], Awaitable[None]],
        timeout: Timeout,
    ) -> None:
        self._client_id = f"broker-{broker_id}-leaving"
        self._broker_id = broker_id
        self._links = links
        self._image = image
        self._sleep = sleep
        self._timeout = timeout

    async def until_known(self, topics: Collection[str]) -> None:
        """Return once all other live brokers know the current leaders of these topics, or after `NEWS_S` seconds.

        A broker whose connection fails is not waited for.
        """
        others = [broker_id for broker_id in self._image.live_brokers() if broker_id != self._broker_id]
        expected = self._leader_epochs(topics)
        if expected:
            await asyncio.gather(*(self._until_known_by(broker_id, expected) for broker_id in others))

    def _leader_epochs(self, topics: Collection[str]) -> ExpectedEpochs:
        documents = (self._image.topics[name] for name in topics if name in self._image.topics)
        return {
            TopicPartition(document.name, number): state.leader_epoch
            for document in documents
            for number, state in enumerate(document.partitions)
        }

    async def _until_known_by(self, broker_id: int, expected: ExpectedEpochs) -> None:
        request_link = RequestLink(self._links, broker_id)
        try:
            async with self._timeout(NEWS_S):
                topics = sorted({which.topic for which in expected})
                for begin in range(0, len(topics), TOPICS_A_REQUEST):
                    await self._until_answered_with(request_link, topics[begin : begin + TOPICS_A_REQUEST], expected)
        except TimeoutError:
            log.warning(
                "broker %d did not confirm the new leaders within %s s, and may still send clients to this broker",
                broker_id,
                NEWS_S,
            )
        except (ConnectionError, MalformedRequest) as error:
            log.info("broker %d did not return the current leaders: %r", broker_id, error)
        finally:
            request_link.close()

    async def _until_answered_with(
        self, request_link: RequestLink, topics: Sequence[str], expected: ExpectedEpochs
    ) -> None:
        late = topics
        while late:
            answer = await request_link.ask(
                encode_request(_metadata_request(late), METADATA_VERSION, 0, self._client_id)
            )
            late = _late(decode_response("MetadataResponse", METADATA_VERSION, answer), expected)
            if late:
                await self._sleep(PAUSE_S)


def _metadata_request(topics: Sequence[str]) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics], allow_auto_topic_creation=False
    )


def _late(response: MetadataResponse, expected: ExpectedEpochs) -> list[str]:
    """Return the topics for which the Metadata response has a leader epoch below the expected one."""
    return [
        topic.name
        for topic in response.topics
        if topic.name is not None
        and any(
            each.leader_epoch < expected.get(TopicPartition(topic.name, each.partition_index), -1)
            for each in topic.partitions
        )
    ]


QUIET_S: Final = 0.5
"""The seconds without a refused request after which a stopping broker assumes that all its clients use the new leaders.

Clients retry within 0.5 s.
"""
DRAIN_S: Final = 3.0
"""The maximum seconds to wait until clients use the new leaders, because a client may never stop its requests."""


class ClientDrain:
    """The tracker of requests that this broker refused because another broker leads the partition."""

    def __init__(self, clock: Clock, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._clock = clock
        self._sleep = sleep
        self._turned_away_s = clock.monotonic_s()

    def turned_away(self) -> None:
        """Record that a request was refused now: its leader epoch is wrong, or another broker leads the partition."""
        self._turned_away_s = self._clock.monotonic_s()

    async def until_all_left(self) -> None:
        """Return once no request has been refused for `QUIET_S` seconds, or after `DRAIN_S` seconds."""
        began_s = now_s = self._clock.monotonic_s()
        while now_s - max(began_s, self._turned_away_s) < QUIET_S and now_s - began_s < DRAIN_S:
            await self._sleep(PAUSE_S)
            now_s = self._clock.monotonic_s()
