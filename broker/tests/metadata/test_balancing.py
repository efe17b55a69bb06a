"""The controller searches for partitions without their preferred leader over several turns."""

import asyncio
from itertools import pairwise
from uuid import UUID

from barnabas_broker.metadata.controller.controller import all_unbalanced
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState, TopicDocument
from barnabas_core.loop_turns import THINGS_MAX, FairTurn
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

AWAY_FROM_HOME = PartitionState((1, 2), 2, 0, (1, 2))
NAMES = [f"t-{number}" for number in range(3 * THINGS_MAX)]


class Topics(dict[str, TopicDocument]):
    """Topics that count their look-ups."""

    looked = 0

    def get(self, name: str, default: object = None) -> TopicDocument | None:  # type: ignore[override]
        self.looked += 1
        return super().get(name)


def image() -> MetadataImage:
    made = MetadataImage()
    made.brokers = {broker: BrokerRegistration(broker, UUID(int=broker), ()) for broker in (1, 2)}
    made.topics = Topics((name, TopicDocument(name, UUID(int=7), (AWAY_FROM_HOME,))) for name in NAMES)
    return made


async def test_topics_are_checked_over_several_turns_without_one_deleted_in_between() -> None:
    cluster = image()
    topics = cluster.topics
    assert isinstance(topics, Topics)
    looking = asyncio.create_task(all_unbalanced(cluster, FairTurn(ManualClock())))
    seen = [0]
    while not looking.done():
        await asyncio.sleep(0)
        topics.pop(NAMES[-1], None)
        seen.append(topics.looked)
    assert looking.result() == [TopicPartition(name, 0) for name in NAMES[:-1]]
    assert max(after - before for before, after in pairwise(seen)) == THINGS_MAX
