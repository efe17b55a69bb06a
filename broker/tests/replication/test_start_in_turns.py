"""A start takes over its partitions over several turns of the loop, so that leases are renewed meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.app.log_tasks import LogTasks
from barnabas_broker.metadata.documents import encode, tombstone_key, topic_key
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_core.loop_turns import THINGS_MAX
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock

TOPICS = 3
EACH = THINGS_MAX


def many(number: int, epoch: int = 1) -> tuple[str, TopicDocument]:
    name = f"many-{number}"
    return topic_key(name), TopicDocument(name, UUID(int=100 + number), (led(HERE, epoch, HERE, replicas=1),) * EACH)


class Starting:
    """A broker whose start the test takes turn by turn, with TOPICS topics of EACH partitions."""

    def __init__(self, folder: Path) -> None:
        flights = TopicDocument(FLIGHTS.topic, UUID(int=7), (led(HERE, 1, HERE, replicas=1),))
        self.broker = Broker(folder, flights.partitions[0])
        documents = [(topic_key(FLIGHTS.topic), flights), *(many(number) for number in range(TOPICS))]
        self.broker.load_anew(*documents)
        self.made: list[int] = [0]

    def turns(self) -> Iterator[None]:
        work = self.broker.replicas.start()
        while True:
            try:
                work.send(None)
            except StopIteration:
                return
            finally:
                self.made.append(sum(1 for _ in self.broker.replicas.lookup.partitions()))
            yield

    def change(self, *changes: tuple[str, bytes | None]) -> None:
        image = self.broker.image
        revision = image.revision + 1
        image.apply_changes(Changes(revision, tuple(Change(revision, key, value) for key, value in changes)))


@pytest.fixture
def starting(tmp_path: Path) -> Starting:
    return Starting(tmp_path)


def test_a_start_creates_its_partitions_over_several_turns(starting: Starting) -> None:
    for _ in starting.turns():
        pass
    assert starting.made[-1] == TOPICS * EACH + 1
    assert max(after - before for before, after in zip(starting.made, starting.made[1:], strict=False)) <= THINGS_MAX


def test_metadata_changes_during_a_start_are_applied(starting: Starting) -> None:
    (key, later), (gone_key, gone) = many(0, epoch=2), many(1)
    turns = starting.turns()
    next(turns)
    starting.change((key, encode(later)))
    next(turns)
    tombstone = TombstoneDocument(gone.name, gone.topic_id, NOW_MS)
    starting.change((tombstone_key(gone.topic_id), encode(tombstone)), (gone_key, None))
    for _ in turns:
        pass
    replicas = starting.broker.replicas
    assert replicas.lookup.topics.keys() == {FLIGHTS.topic, "many-0", "many-2"}
    assert {each.leader_epoch for each in replicas.lookup.topics["many-0"].partitions.values()} == {2}
    assert len(replicas.lookup.topics["many-2"].partitions) == EACH


def test_a_topic_that_is_deleted_while_a_start_checks_the_logs_leaves_no_log(starting: Starting) -> None:
    """Nothing would show that its logs may be deleted once its tombstone is gone."""
    for _ in starting.turns():
        pass
    topics = [many(number)[1] for number in range(TOPICS)]
    starting.broker.load_anew(*(many(number) for number in range(TOPICS)))
    turns = starting.turns()
    next(turns)
    assert starting.made[-1] == 0
    for each in topics:
        tombstone = TombstoneDocument(each.name, each.topic_id, NOW_MS)
        starting.change((tombstone_key(each.topic_id), encode(tombstone)), (topic_key(each.name), None))
    for _ in turns:
        pass
    assert {each.topic for each in starting.broker.logs.logs} == {FLIGHTS.topic}, "the metadata lacks this topic"


def test_an_interrupted_start_forgets_no_high_watermark(starting: Starting) -> None:
    broker, last = starting.broker, TopicPartition("many-2", EACH - 1)
    for _ in starting.turns():
        pass
    broker.append(5, broker.replicas.lookup.hosted(last))
    broker.load_anew(*(many(number) for number in range(TOPICS)), high_watermarks={last: 5})
    next(starting.turns())
    assert broker.replicas.lookup.hosted(last) is None
    periodic_tasks = LogTasks(broker.logs, broker.replicas, ManualClock(), lambda _: None)
    broker.logs.checkpoint(periodic_tasks.high_watermark_of)
    assert broker.logs.checkpointed_high_watermark(last) == 5
