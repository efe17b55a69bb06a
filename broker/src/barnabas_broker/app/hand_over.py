"""The controlled shutdown, which moves leadership to other brokers before a broker stops."""

import asyncio
import logging
from typing import Final

from barnabas_broker.metadata.controller.metadata_writer import MetadataWriter
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.leader_propagation import ClientDrain, LeaderPropagation
from barnabas_core.errors import ApiError

log = logging.getLogger(__name__)

HAND_OVER_S: Final = 10.0
"""The timeout in seconds for moving leadership.

After the timeout, the remaining partitions get new leaders only when the session of this broker ends.
"""


async def hand_over(
    broker_id: int,
    image: MetadataImage,
    metadata_writer: MetadataWriter,
    leader_propagation: LeaderPropagation,
    client_drain: ClientDrain,
) -> None:
    """Move leadership from this broker to others, and wait until brokers and clients know the new leaders.

    Return at once if no other broker is alive.
    """
    if all(each == broker_id for each in image.live_brokers()):
        return
    led = [each.name for each in image.topics.values() if any(state.leader == broker_id for state in each.partitions)]
    try:
        async with asyncio.timeout(HAND_OVER_S):
            left = await metadata_writer.hand_over(broker_id)
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
        await leader_propagation.until_heard(led)
        await client_drain.until_all_left()
