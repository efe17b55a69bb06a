"""Texts about partitions that are offline because every replica lacks committed records."""

import asyncio
from itertools import pairwise
from uuid import UUID

import msgspec
import pytest
from metadata_cluster import a_topic, led

from barnabas_broker.metadata.controller.controller import NAMED_MAX, LossReports, config_value, lost_in
from barnabas_broker.metadata.documents import encode, log_ends_key, topic_key
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import NO_LOG, KnownEnds, part_of
from barnabas_broker.metadata.model import NO_LEADER, LogEnd, LogEndsDocument, PartitionState, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Document, Listing
from barnabas_core.loop_turns import THINGS_MAX, FairTurn
from harness.manual_clock import ManualClock

LOST = PartitionState((1, 2), NO_LEADER, 6, (), last_known_leader=2, lacking=(1, 2))


def shown(
    topic: TopicDocument, *ends: tuple[int, LogEnd], revision: int = 1, image: MetadataImage | None = None
) -> MetadataImage:
    """Return an image with brokers' reports about partition 0."""
    image = image or MetadataImage()
    documents = [Document(topic_key(topic.name), encode(topic), revision)]
    for broker, end in ends:
        told = LogEndsDocument(1, {topic.topic_id: msgspec.Raw(msgspec.json.encode([end]))})
        documents.append(Document(log_ends_key(broker, part_of(topic.topic_id, 0)), encode(told), revision))
    image.apply_listing(Listing(revision, documents))
    return image


def test_the_text_of_a_loss_names_the_known_end_and_remaining_logs() -> None:
    topic = a_topic("orders", LOST, led(1, 2))
    image = shown(topic, (1, LogEnd(0, 3, 120, 9308)), (2, LogEnd(0, -1, NO_LOG, 9300)))
    (lost,) = lost_in(topic, KnownEnds(image))
    assert lost.text() == "the last known log end is 9308, the log of broker 1 ends at 120, broker 2 has no log"
    assert config_value([lost]) == f"0: {lost.text()}"
    (unknown,) = lost_in(topic, KnownEnds(MetadataImage()))
    assert (
        unknown.text() == "the log end before the loss is unknown, broker 1 has not reported its log end, "
        "broker 2 has not reported its log end"
    )


OFFLINE = [
    pytest.param(led(1, 2), 0, id="led"),
    pytest.param(msgspec.structs.replace(LOST, elr=(2,), lacking=(1,)), 0, id="one that has all is away"),
    pytest.param(msgspec.structs.replace(LOST, lacking=(1,)), 0, id="the last known leader lacks nothing"),
    pytest.param(LOST, 1, id="all that had something lack records"),
]


@pytest.mark.parametrize(("state", "count"), OFFLINE)
def test_an_offline_partition_that_waits_for_a_replica_is_not_reported_as_lost(
    state: PartitionState, count: int
) -> None:
    assert len(lost_in(a_topic("orders", state), KnownEnds(MetadataImage()))) == count


def test_the_text_about_the_losses_of_a_topic_is_bounded() -> None:
    topic = TopicDocument("orders", UUID(int=1), (LOST,) * 1000)
    value = config_value(lost_in(topic, KnownEnds(MetadataImage())))
    assert value.endswith(f"; and {1000 - NAMED_MAX} more partitions")
    assert len(value) < 20_000


async def test_the_controller_logs_each_loss_once(caplog: pytest.LogCaptureFixture) -> None:
    image = shown(a_topic("orders", LOST))
    news, turn = LossReports(image), FairTurn(ManualClock())
    await news.report(["orders", "gone"], turn)
    await news.report(["orders"], turn)
    (record,) = caplog.records
    assert record.message.startswith(
        "orders-0 is offline because every replica lacks committed records: the log end before the loss is unknown"
    )
    assert record.message.endswith(
        "`barnabas accept-loss --topic orders --partition 0` elects the replica with the longest log"
    )
    shown(a_topic("orders", led(1, 2, epoch=7)), revision=2, image=image)
    await news.report(["orders"], turn)
    shown(a_topic("orders", msgspec.structs.replace(LOST, partition_epoch=9)), revision=3, image=image)
    await news.report(["orders"], turn)
    assert len(caplog.records) == 2, "a second loss is logged, too"


async def test_the_controller_checks_topics_for_losses_over_several_turns() -> None:
    looked: list[str] = []
    seen = [0]

    class Topics(dict[str, TopicDocument]):
        def get(self, name: str, default: object = None) -> None:  # type: ignore[override]
            looked.append(name)

    async def beside() -> None:
        while True:
            seen.append(len(looked))
            await asyncio.sleep(0)

    image = MetadataImage()
    image.topics = Topics()
    others = asyncio.create_task(beside())
    await LossReports(image).report([f"t-{number}" for number in range(3 * THINGS_MAX)], FairTurn(ManualClock()))
    others.cancel()
    assert len(looked) == 3 * THINGS_MAX
    assert max(after - before for before, after in pairwise([*seen, len(looked)])) == THINGS_MAX
