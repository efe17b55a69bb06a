"""A broker that shuts down asks the others whether they know the new leaders, over a simulated network."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import PartitionState, TopicDocument
from barnabas_broker.replication.other_brokers import METADATA_VERSION, PAUSE_S, TOPICS_A_REQUEST, LeaderPropagation
from barnabas_broker.wire.encoder import decode_request, encode_response
from barnabas_broker.wire.framing import parse_request_header
from barnabas_broker.wire.messages import MetadataResponse

HERE = 1
METADATA = 3
NOW, BEFORE = 7, 6
Topic = MetadataResponse.MetadataResponseTopic


class OtherBrokers:
    """Brokers that return the old leader epoch so many times; a broker that is not listed does not answer at all."""

    def __init__(self, **late: int) -> None:
        self.late = {int(name.removeprefix("b")): times for name, times in late.items()}
        self.unreachable: set[int] = set()
        self.asked: list[tuple[int, int]] = []
        """The broker of each request, and the number of its topics."""
        self.open_count = 0

    def open(self, broker_id: int, on_closed: Callable[[str], None]) -> "OtherBroker":
        self.open_count += 1
        return OtherBroker(self, broker_id, on_closed)


class OtherBroker:
    def __init__(self, brokers: OtherBrokers, broker_id: int, on_closed: Callable[[str], None]) -> None:
        self._brokers, self._broker_id = brokers, broker_id
        if broker_id in brokers.unreachable:
            asyncio.get_running_loop().call_soon(on_closed, "cannot connect: refused")

    def send(self, frame: bytes | bytearray, on_response: Callable[[memoryview], None]) -> None:
        view = memoryview(frame)
        header = parse_request_header(view, 4, len(view))
        assert (header.api_key, header.api_version, header.client_id) == (
            METADATA,
            METADATA_VERSION,
            "broker-1-leaving",
        )
        request = decode_request(METADATA, METADATA_VERSION, view[header.body_start :])
        assert not request.allow_auto_topic_creation
        self._brokers.asked.append((self._broker_id, len(request.topics)))
        left = self._brokers.late.get(self._broker_id)
        if left is None:
            return
        self._brokers.late[self._broker_id] = max(left - 1, 0)
        topics = [_told(topic.name, BEFORE if left else NOW) for topic in request.topics]
        answer = MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="", controller_id=1, topics=topics)
        frame = encode_response(answer, METADATA_VERSION, 0)
        asyncio.get_running_loop().call_soon(on_response, memoryview(bytes(frame))[4:])

    def close(self) -> None:
        self._brokers.open_count -= 1


def _told(name: str, epoch: int) -> Topic:
    """Return the answer for a topic; only that for "late" may have the old epoch."""
    epoch = epoch if name == "late" else NOW
    partition = Topic.MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=2, leader_epoch=epoch, replica_nodes=[], isr_nodes=[]
    )
    return Topic(error_code=0, name=name, is_internal=False, partitions=[partition])


def image_of(*topics: str, live: tuple[int, ...]) -> MetadataImage:
    image = MetadataImage()
    image.live = frozenset(live)
    for number, name in enumerate(topics):
        image.topics[name] = TopicDocument(name, UUID(int=number + 1), (PartitionState((1, 2, 3), 2, NOW, (2, 3)),))
    return image


class Pauses:
    """Time that passes at once, and is counted."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, seconds: float) -> None:
        assert seconds == PAUSE_S
        self.count += 1
        await asyncio.sleep(0)


async def test_all_live_brokers_are_asked_until_they_know_the_new_leaders(caplog: pytest.LogCaptureFixture) -> None:
    others, pauses = OtherBrokers(b2=0, b3=3), Pauses()
    image = image_of("late", "other", live=(1, 2, 3))
    await LeaderPropagation(HERE, others, image, pauses, asyncio.timeout).until_known(["late", "other", "gone"])
    assert [topics for broker, topics in others.asked if broker == 2] == [2]
    assert [topics for broker, topics in others.asked if broker == 3] == [2, 1, 1, 1]
    assert (pauses.count, others.open_count, caplog.messages) == (3, 0, [])


async def test_many_topics_are_asked_for_in_parts() -> None:
    others = OtherBrokers(b2=0)
    names = [f"t{number:04}" for number in range(TOPICS_A_REQUEST + 1)]
    await LeaderPropagation(HERE, others, image_of(*names, live=(1, 2)), Pauses(), asyncio.timeout).until_known(names)
    assert others.asked == [(2, TOPICS_A_REQUEST), (2, 1)]


async def test_no_broker_is_asked_if_this_one_led_no_partition() -> None:
    others = OtherBrokers()
    await LeaderPropagation(HERE, others, image_of("a", live=(1, 2)), Pauses(), asyncio.timeout).until_known([])
    assert (others.asked, others.open_count) == ([], 0)


async def test_an_unreachable_broker_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    others = OtherBrokers(b3=0)
    others.unreachable.add(2)
    await LeaderPropagation(HERE, others, image_of("late", live=(1, 2, 3)), Pauses(), asyncio.timeout).until_known(
        ["late"]
    )
    assert [broker for broker, _ in others.asked if broker == 3] == [3]
    assert "broker 2 did not return the current leaders: ConnectionError('cannot connect: refused')" in caplog.messages
    assert others.open_count == 0


async def test_a_broker_that_never_answers_is_waited_for_no_longer_than_the_limit(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.replication.other_brokers.NEWS_S", 0.01)
    others = OtherBrokers()
    await LeaderPropagation(HERE, others, image_of("late", live=(1, 2)), Pauses(), asyncio.timeout).until_known(
        ["late"]
    )
    assert others.open_count == 0
    warning = "broker 2 did not confirm the new leaders within 0.01 s, and may still send clients to this broker"
    assert warning in caplog.messages
