"""The wait of a stopping broker until the other brokers know the new leaders.

A client that connects to a stopped broker, because another broker named it as a leader, retries the address with
growing pauses (librdkafka's reconnect.backoff.max.ms is 10 s). Kafka's controller delays a controlled shutdown for the
same reason until all live brokers have caught up with the change (KIP-631). Here the stopping broker sends Metadata
requests to the other brokers until their responses name the new leaders.

The wait of a stopping broker until its clients have moved to the new leaders. A client whose connection ends
reconnects at once if it still takes this broker for a leader. On Kubernetes such a connection may go to a pod that
no longer exists, so the client waits for `socket.connection.setup.timeout.ms`, 30 s in librdkafka. A client that
gets NOT_LEADER_OR_FOLLOWER looks for the new leader instead. So a stopping broker answers requests until no client
sends requests for partitions that have moved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.end_offsets import Links, RequestLink
from barnabas_broker.wire.encoder import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import MetadataRequest, MetadataResponse
from barnabas_core.clock import Clock, Timeout
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

VERSION: Final = 8
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

    async def until_heard(self, topics: Collection[str]) -> None:
        """Return once all other live brokers know the current leaders of these topics, or after `NEWS_S` seconds.

        A broker whose connection fails is not waited for.
        """
        others = [broker_id for broker_id in self._image.live_brokers() if broker_id != self._broker_id]
        expected = self._leader_epochs(topics)
        if expected:
            await asyncio.gather(*(self._until_it_heard(broker_id, expected) for broker_id in others))

    def _leader_epochs(self, topics: Collection[str]) -> ExpectedEpochs:
        documents = (self._image.topics[name] for name in topics if name in self._image.topics)
        return {
            TopicPartition(document.name, number): state.leader_epoch
            for document in documents
            for number, state in enumerate(document.partitions)
        }

    async def _until_it_heard(self, broker_id: int, expected: ExpectedEpochs) -> None:
        request_link = RequestLink(self._links, broker_id)
        try:
            async with self._timeout(NEWS_S):
                topics = sorted({which.topic for which in expected})
                for begin in range(0, len(topics), TOPICS_A_REQUEST):
                    await self._until_it_tells(request_link, topics[begin : begin + TOPICS_A_REQUEST], expected)
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

    async def _until_it_tells(self, request_link: RequestLink, topics: Sequence[str], expected: ExpectedEpochs) -> None:
        late = topics
        while late:
            answer = await request_link.ask(encode_request(_request(late), VERSION, 0, self._client_id))
            late = _late(decode_response("MetadataResponse", VERSION, answer), expected)
            if late:
                await self._sleep(PAUSE_S)


def _request(topics: Sequence[str]) -> MetadataRequest:
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
