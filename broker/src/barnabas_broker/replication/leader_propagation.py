"""The wait for other brokers to learn of new leaders: a stopping broker serves until they have.

A client that asks for a leader, and gets a broker that is gone, tries that address again with growing pauses
(librdkafka's reconnect.backoff.max.ms is 10 s). So no broker may go while others still name it as leader. Kafka's
controller holds a broker in its controlled shutdown for the same reason, until all live ones have caught up with the
change (KIP-631); here the broker asks them as any client would.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.links import Links
from barnabas_broker.replication.request_link import RequestLink
from barnabas_broker.wire.codec import decode_response, encode_request
from barnabas_broker.wire.framing import MalformedRequest
from barnabas_broker.wire.messages import MetadataRequest, MetadataResponse
from barnabas_core.clock import Timeout
from barnabas_core.topic_partition import TopicPartition

log = logging.getLogger(__name__)

VERSION: Final = 8
"""Metadata; it has leader epochs from 7 on."""
NEWS_S: Final = 3.0
"""The longest wait for a broker to learn of the new leaders."""
PAUSE_S: Final = 0.05
"""The pause before a broker that lacks the change is asked again; a watch takes 0.1 to 0.2 s on Kubernetes."""
TOPICS_A_REQUEST: Final = 200
"""A few milliseconds of the other broker's loop."""

ExpectedEpochs = Mapping[TopicPartition, int]


class LeaderPropagation:
    """The wait; `links` reaches the other brokers, `broker_id` is this one."""

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
        """Return once all other live brokers know the leaders of these topics as they are now, or after `NEWS_S`."""
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
                "broker %d may still name this one as a leader after its stop: it confirmed no change within %s s",
                broker_id,
                NEWS_S,
            )
        except (ConnectionError, MalformedRequest) as error:
            log.info("broker %d did not answer which brokers lead: %r", broker_id, error)
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
    """Return the topics in a response with older leader epochs than expected; unknown topics do not count."""
    return [
        topic.name
        for topic in response.topics
        if topic.name is not None
        and any(
            each.leader_epoch < expected.get(TopicPartition(topic.name, each.partition_index), -1)
            for each in topic.partitions
        )
    ]
