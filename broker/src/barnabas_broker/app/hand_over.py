"""The controlled shutdown, which moves leadership to other brokers before a broker stops."""

import asyncio
import logging
from typing import Final

from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.client_drain import ClientDrain
from barnabas_broker.replication.leader_propagation import LeaderPropagation
from barnabas_core.errors import ApiError

log = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
"""The timeout in seconds for moving leadership.

After the timeout, the remaining partitions get new leaders only when the session of this broker ends.
"""


class HandOver:
    """The move of leadership of all partitions that the broker `broker_id` leads."""

    def __init__(
        self,
        broker_id: int,
        image: MetadataImage,
        metadata_writer: MetadataWriter,
        leader_propagation: LeaderPropagation,
        client_drain: ClientDrain,
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._metadata_writer = metadata_writer
        self._leader_propagation = leader_propagation
        self._client_drain = client_drain

    async def run(self) -> None:
        """Move leadership to other brokers, and wait until brokers and clients know the new leaders.

        Return at once if no other broker is alive.
        """
        if all(broker_id == self._broker_id for broker_id in self._image.live_brokers()):
            return
        led = self._led_topics()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                left = await self._metadata_writer.hand_over(self._broker_id)
        except (ApiError, TimeoutError) as error:
            log.warning(
                "leadership could not be moved; other brokers lead only after the session of this broker expires: %s",
                error,
            )
        else:
            if left:
                log.warning(
                    "%d partitions will have no leader while this broker is down, because no other replica can lead",
                    len(left),
                )
        if led:
            await self._leader_propagation.until_heard(led)
            await self._client_drain.until_all_left()

    def _led_topics(self) -> list[str]:
        topics = self._image.topics.values()
        return [topic.name for topic in topics if any(state.leader == self._broker_id for state in topic.partitions)]
