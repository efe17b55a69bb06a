"""Controlled shutdown: others lead before this broker stops, so that clients need not wait for its session's end."""

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
"""The seconds without an answer of the metadata store after which leadership moves only after the end."""


class HandOver:
    """The handing over of all partitions that the broker `broker_id` leads."""

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
        """Move leadership away; return once the other brokers know the new leaders and the clients use them.

        It returns at once if no other broker is alive.
        """
        if all(broker_id == self._broker_id for broker_id in self._image.live_brokers()):
            return
        led = self._led_topics()
        try:
            async with asyncio.timeout(HAND_OVER_S):
                left = await self._metadata_writer.hand_over(self._broker_id)
        except (ApiError, TimeoutError) as error:
            log.warning("leadership stays here, so other brokers lead only once they miss this one: %s", error)
        else:
            if left:
                log.warning("%d partitions have no leader while this broker is down: no other can lead them", len(left))
        if led:
            await self._leader_propagation.until_heard(led)
            await self._client_drain.until_all_left()

    def _led_topics(self) -> list[str]:
        topics = self._image.topics.values()
        return [topic.name for topic in topics if any(state.leader == self._broker_id for state in topic.partitions)]
