"""The delivery of a share group at the leader of a real partition; the test gives the answers of the persister."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from one_replica import HERE, NOW_MS, OTHER, Broker, led
from test_share_records import FIRST_UPDATE, LAST_UPDATE, SECOND_UPDATE

from barnabas_broker.coordinators.share_delivery.delivery import Delivered, DeliveryEnvironment, ShareDelivery
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition, Life
from barnabas_broker.coordinators.share_delivery.sessions import FINAL_EPOCH, SessionKey, ShareSession, ShareSessions
from barnabas_broker.coordinators.share_delivery.share_partition import (
    ACCEPT,
    REJECT,
    RELEASE,
    AcknowledgementBatch,
    Wish,
)
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.coordinators.share_state.persister import Outcomes
from barnabas_broker.coordinators.share_state.share_state import (
    ReadEntry,
    ShareOutcome,
    SharePartitionKey,
    ShareRecord,
    ShareState,
    StateBatch,
    WriteEntry,
)
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.leader_replica import Purgatory
from barnabas_broker.wire.key_values import Marker
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.group_configs import ShareGroupConfig, effective_share_config
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicIdPartition
from harness.verified import verified

KEY = TopicIdPartition(UUID(int=7), 0)
ALL = Wish(500, 500, is_strict=False)


class HeldPersister:
    """A persister whose answers wait until the test gives them."""

    def __init__(self) -> None:
        self.stored = ShareOutcome(state_epoch=3, start_offset=0)
        self.asked: list[tuple[ReadEntry | WriteEntry, Callable[[Outcomes], object]]] = []

    def read(self, group_id: str, entries: Sequence[ReadEntry], answer: Callable[[Outcomes], object]) -> None:
        self.asked += [(each, answer) for each in entries]

    def write(self, group_id: str, entries: Sequence[WriteEntry], answer: Callable[[Outcomes], object]) -> None:
        self.asked += [(each, answer) for each in entries]

    @property
    def writes(self) -> list[tuple[int, int, list[StateBatch]]]:
        """Return what waits: start offset, delivery complete count, and batches."""
        entries = [entry for entry, _ in self.asked if isinstance(entry, WriteEntry)]
        return [(each.start_offset, each.delivery_complete_count, list(each.batches)) for each in entries]

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the request that has waited longest."""
        entry, answer = self.asked.pop(0)
        answer({entry.partition: self.stored._replace(error=error)})


class World:
    """A broker that leads a partition, and the delivery of a group `g` there."""

    def __init__(self, folder: Path, **configs: str) -> None:
        self.broker = Broker(folder, led(HERE, 0, HERE, replicas=1))
        self.persister = HeldPersister()
        self.configs = {"share.auto.offset.reset": "earliest"} | {
            name.replace("_", "."): value for name, value in configs.items()
        }
        self.waiting: list[LedPartition] = []
        self.answers: list[ApiError | None] = []
        broker = self.broker
        environment = DeliveryEnvironment(
            self.persister,  # type: ignore[arg-type]
            broker.replicas,
            broker.image,
            Purgatory(broker.timers),
            broker.clock,
            broker.timers,
            run,
            self._config,
            lambda: True,
            lambda: 2,
            lambda _: True,
        )
        self.delivery = ShareDelivery(environment, self.waiting.append)

    def _config(self, group_id: str) -> ShareGroupConfig:
        return effective_share_config(self.configs, self.broker.config)

    def open(self) -> LedPartition:
        """Return the share partition; its state is read."""
        opened = self.delivery.open("g", KEY)
        if opened.life is Life.INITIALIZING:
            self.persister.answer()
        return opened

    def session(self, member: str = "m") -> ShareSession:
        return self.delivery.sessions.begin(SessionKey("g", member), None)

    def deliver(self, session: ShareSession, wish: Wish = ALL) -> Delivered | None:
        delivered: Delivered | None = run(self.delivery.deliver(self.open(), session, wish, 1 << 20, at_least_one=True))
        return delivered

    def append(self, record: Record, **fields: int) -> None:
        batch = encode_batch([record], **fields)
        partition, header = self.broker.partition, parse_header(batch, 0)
        partition.append_as_leader(memoryview(batch), header, NOW_MS, verified(partition.log, header))

    def next_value(self) -> bytes | None:
        """Answer the write that has waited longest, and return the value that a share coordinator stores."""
        entry, _ = self.persister.asked[0]
        assert isinstance(entry, WriteEntry)
        self.persister.answer()
        return stored_by(entry)

    def acknowledge(self, first: int, last: int, kind: int) -> None:
        batch = AcknowledgementBatch(first, last, [kind])
        self.open().acknowledge("m", [batch], self.answers.append)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing but its next turn."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        return end.value


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.broker.stop()


def test_nothing_is_delivered_before_the_stored_state_is_read(world: World) -> None:
    world.broker.append(3)
    opened = world.delivery.open("g", KEY)
    assert run(world.delivery.deliver(opened, world.session(), ALL, 1 << 20, at_least_one=True)) is None
    assert world.persister.asked[0][0] == ReadEntry(KEY, world.broker.partition.leader_epoch)


def test_acquired_records_come_with_their_batches(world: World) -> None:
    world.broker.append(5)
    delivered = world.deliver(world.session(), Wish(2, 1, is_strict=True))
    assert delivered is not None
    assert delivered.acquired == [(0, 0, 1), (1, 1, 1)]
    one_batch = len(delivered.records) // 2
    rest = world.deliver(world.session("other"))
    assert rest is not None
    assert rest.acquired == [(2, 4, 1)]
    assert len(rest.records) == 3 * one_batch


def test_an_acknowledgement_is_answered_when_it_is_stored(world: World) -> None:
    world.broker.append(5)
    world.deliver(world.session())
    world.acknowledge(0, 1, ACCEPT)
    assert world.persister.writes == [(0, 2, [StateBatch(0, 1, 2, 1)])]
    assert not world.answers
    world.persister.answer()
    assert world.answers == [None]
    assert world.open().records.window.start == 2


def test_changes_during_a_write_are_stored_together_with_the_next(world: World) -> None:
    world.broker.append(5)
    world.deliver(world.session())
    for offset in range(4):
        world.acknowledge(offset, offset, ACCEPT)
    assert len(world.persister.asked) == 1
    world.persister.answer()
    assert world.persister.writes == [(1, 3, [StateBatch(each, each, 2, 1) for each in (1, 2, 3)])]
    world.persister.answer()
    assert world.answers == [None] * 4


def test_an_acknowledgement_that_cannot_be_stored_leaves_the_lock(world: World) -> None:
    world.broker.append(1)
    world.deliver(world.session())
    world.acknowledge(0, 0, ACCEPT)
    world.persister.answer(ErrorCode.NOT_COORDINATOR)
    assert [each.code for each in world.answers if each] == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    world.acknowledge(0, 0, ACCEPT)
    world.persister.answer()
    assert world.answers[-1] is None


def test_a_lock_that_ends_releases_the_record_and_the_release_is_stored_until_that_succeeds(world: World) -> None:
    world.broker.append(1)
    world.deliver(world.session())
    world.broker.timers.pass_time(30)
    assert world.persister.writes == [(0, 0, [StateBatch(0, 0, 0, 1)])]
    assert world.open().counts.lock_timeouts == 1
    world.persister.answer(ErrorCode.REQUEST_TIMED_OUT)
    again = world.deliver(world.session("other"))
    assert again is not None
    assert again.acquired == [(0, 0, 2)]
    world.broker.timers.pass_time(1)
    assert world.persister.writes == [(0, 0, [StateBatch(0, 0, 0, 1)])]


def test_a_state_that_cannot_be_stored_for_long_stops_deliveries_before_the_memory_is_full(tmp_path: Path) -> None:
    world = World(tmp_path, share_partition_max_record_locks="100", share_delivery_count_limit="10")
    world.broker.append(40)
    session, one, times = world.session(), Wish(1, 1, is_strict=True), 0
    while times < 200 and world.deliver(session, one):
        world.broker.timers.pass_time(30)
        times += 1
    assert times == 102, "releases that wait to be stored must not add up"
    assert not world.delivery.available_bytes(world.open(), 1000), "a request waits instead of asking on and on"
    while world.persister.asked:
        world.persister.answer()
    assert world.deliver(session, one)
    world.broker.stop()


def test_a_fenced_leader_answers_what_waits_and_begins_again(world: World) -> None:
    world.broker.append(2)
    world.deliver(world.session())
    first = world.open()
    world.acknowledge(0, 0, ACCEPT)
    world.acknowledge(1, 1, ACCEPT)
    world.persister.answer(ErrorCode.FENCED_STATE_EPOCH)
    assert [each.code for each in world.answers if each] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert first.life is Life.FENCED
    assert world.delivery.open("g", KEY) is not first


def test_a_broker_that_leads_no_more_delivers_and_acknowledges_nothing(world: World) -> None:
    world.broker.append(1)
    world.deliver(world.session())
    opened = world.open()
    world.broker.show(PartitionState((HERE, OTHER), OTHER, 9, (HERE, OTHER), partition_epoch=9))
    world.broker.timers.pass_time(1)
    assert opened.life is Life.FENCED
    with pytest.raises(ApiError) as refusal:
        world.delivery.open("g", KEY)
    assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_state_that_cannot_be_read_is_answered_and_read_again(world: World) -> None:
    opened = world.delivery.open("g", KEY)
    world.persister.answer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert opened.life is Life.FAILED
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        opened.check()
    assert world.open().life is Life.ACTIVE


def test_a_group_that_begins_at_the_end_stores_where_it_begins(tmp_path: Path) -> None:
    world = World(tmp_path, share_auto_offset_reset="latest")
    world.persister.stored = ShareOutcome(state_epoch=3, start_offset=-1)
    world.broker.append(4)
    opened = world.open()
    assert (opened.life, world.persister.writes) == (Life.INITIALIZING, [(4, 0, [])])
    world.persister.answer()
    assert (opened.life, opened.records.window.start) == (Life.ACTIVE, 4)
    world.broker.stop()


def test_a_group_that_begins_at_the_end_of_an_empty_log_gets_what_is_written_before_the_next_leader(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, share_auto_offset_reset="latest")
    world.persister.stored = ShareOutcome(state_epoch=3, start_offset=-1)
    world.open()
    assert world.persister.writes == [(0, 0, [])], "the next leader would begin behind the records"
    world.broker.stop()


def test_a_session_that_ends_releases_what_its_member_has_acquired(world: World) -> None:
    world.broker.append(3)
    session = world.session()
    world.deliver(session)
    world.delivery.sessions.close(session)
    assert world.persister.writes == [(0, 0, [StateBatch(0, 2, 0, 1)])]
    world.persister.answer()
    assert not list(world.delivery.led()), "a group without sessions leaves the memory"


def test_acknowledgements_count_once_they_are_stored(world: World) -> None:
    world.broker.append(1)
    world.deliver(world.session())
    counts = world.open().counts
    world.acknowledge(0, 0, ACCEPT)
    world.persister.answer(ErrorCode.NOT_COORDINATOR)
    assert world.answers[-1] is not None
    assert not any(counts.acknowledgements)
    world.acknowledge(0, 0, ACCEPT)
    assert not any(counts.acknowledgements)
    world.persister.answer()
    assert counts.acknowledgements[ACCEPT] == 1


def test_a_rejected_record_of_a_group_with_dead_letters_waits_for_its_dead_letter(tmp_path: Path) -> None:
    world = World(tmp_path, errors_deadletterqueue_topic_name="dlq.flights")
    world.broker.append(2)
    world.deliver(world.session())
    world.acknowledge(0, 0, REJECT)
    assert not world.waiting
    world.persister.answer()
    assert world.waiting == [world.open()]
    assert world.open().records.count(RecordState.ARCHIVING) == 1
    world.open().archive(0, 0, world.answers.append)
    assert world.persister.writes == [(0, 1, [StateBatch(0, 0, 4, 1)])]
    world.broker.stop()


def test_records_that_lose_their_last_lock_get_dead_letters_only_when_that_is_stored(tmp_path: Path) -> None:
    world = World(tmp_path, errors_deadletterqueue_topic_name="dlq.flights", share_delivery_count_limit="2")
    world.persister.stored = ShareOutcome(state_epoch=3, start_offset=0, batches=[StateBatch(0, 0, 0, 1)])
    world.broker.append(1)
    world.deliver(world.session())
    world.broker.timers.pass_time(30)
    assert world.persister.writes == [(0, 0, [StateBatch(0, 0, 3, 2)])]
    assert not world.waiting
    world.persister.answer()
    assert world.waiting == [world.open()]
    world.broker.stop()


def stored_by(entry: WriteEntry) -> bytes | None:
    """Return the value of the record with which a share coordinator stores the entry."""
    fields = {"start_offset": entry.start_offset, "delivery_complete_count": entry.delivery_complete_count}
    state = ShareState(0, 0, 0, **fields, batches=list(entry.batches))
    return ShareRecord(SharePartitionKey("g", *KEY), state, is_update=True).encode()[1]


def test_deliveries_are_stored_in_the_bytes_of_apache_kafka(tmp_path: Path) -> None:
    world = World(tmp_path, errors_deadletterqueue_topic_name="dlq.flights")
    world.broker.append(6)
    world.deliver(world.session())
    kinds = ((0, 0, ACCEPT), (1, 1, RELEASE), (2, 2, REJECT), (3, 5, ACCEPT))
    batches = [AcknowledgementBatch(first, last, [kind]) for first, last, kind in kinds]
    world.open().acknowledge("m", batches, world.answers.append)
    values = [world.next_value()]
    world.deliver(world.session())
    world.acknowledge(1, 1, ACCEPT)
    values.append(world.next_value())
    world.open().archive(2, 2, world.answers.append)
    values.append(world.next_value())
    assert values == [bytes.fromhex(each) for each in (FIRST_UPDATE, SECOND_UPDATE, LAST_UPDATE)]
    counts = world.open().counts
    assert (counts.first_deliveries, counts.later_deliveries) == (6, 1)
    world.broker.stop()


@pytest.mark.parametrize(("duration", "start"), [("PT0S", 3), ("PT20M", 2), ("P1D", 0)])
def test_a_group_begins_at_the_first_record_that_is_younger_than_a_duration(
    duration: str, start: int, tmp_path: Path
) -> None:
    world = World(tmp_path, share_auto_offset_reset=f"by_duration:{duration}")
    world.persister.stored = ShareOutcome(state_epoch=3, start_offset=-1)
    for minutes in (50, 30, 10):
        world.append(Record(0, NOW_MS - minutes * 60_000, None, b"value"))
    world.open()
    assert world.persister.writes == [(start, 0, [])]
    world.broker.stop()


def test_a_group_that_reads_committed_records_gets_none_of_aborted_or_open_transactions(tmp_path: Path) -> None:
    world = World(tmp_path, share_isolation_level="read_committed")
    for producer_id, is_commit in ((1, True), (2, False), (3, None)):
        transactional = {"attributes": TRANSACTIONAL_BIT, "producer_id": producer_id, "producer_epoch": 0}
        world.append(Record(0, NOW_MS, None, b"value"), base_sequence=0, **transactional)
        if is_commit is not None:
            world.broker.partition.append_marker(Marker(producer_id, 0, 0, is_commit=is_commit), 1, NOW_MS)
    delivered = world.deliver(world.session())
    assert delivered is not None
    assert delivered.acquired == [(0, 0, 1)]
    assert world.deliver(world.session("other")) is None, "the last transaction is open"
    world.acknowledge(0, 0, ACCEPT)
    world.persister.answer()
    assert world.open().records.window.start == 4
    world.broker.stop()


def test_a_released_record_wakes_requests_that_wait(world: World) -> None:
    world.broker.append(1)
    world.deliver(world.session())
    opened, woken = world.open(), []

    class Waiting:
        def try_complete(self, changed: object) -> bool:
            woken.append(changed)
            return True

        def expire(self) -> None:
            raise AssertionError("the wait should not end by itself")

    Purgatory(world.broker.timers).watch(Waiting(), [opened.waiters], 60)
    world.acknowledge(0, 0, RELEASE)
    world.persister.answer()
    world.broker.timers.pass_time(0)
    assert woken == [opened.waiters]


def test_records_wake_one_of_the_requests_that_wait_and_the_next_one_when_it_has_left_some(world: World) -> None:
    world.broker.append(2)
    opened = world.open()

    def is_woken() -> bool:
        return opened.may_be_taken

    assert is_woken()
    opened.is_offered = True
    assert not is_woken(), "a request was woken for them"
    world.deliver(world.session(), Wish(1, 1, is_strict=True))
    assert is_woken(), "one record is left"
    world.deliver(world.session("other"))
    assert not is_woken(), "members hold both"
    opened.stop()
    assert is_woken(), "the requests get the error"


class Line:
    """A connection."""

    def __init__(self) -> None:
        self.when_closed: list[Callable[..., object]] = []

    def close(self) -> None:
        for each in self.when_closed:
            each(self)


def test_a_session_counts_its_requests_and_refuses_others() -> None:
    sessions = ShareSessions(lambda: 2, lambda _: None)
    key = SessionKey("g", "m")
    with pytest.raises(ApiError) as unknown:
        sessions.resume(key, 1)
    session = sessions.begin(key, None)
    assert sessions.resume(key, 1) is session
    assert sessions.resume(key, 2) is session
    assert sessions.resume(key, FINAL_EPOCH) is session
    with pytest.raises(ApiError) as wrong:
        sessions.resume(key, 2)
    session.epoch = 2**31 - 1
    sessions.resume(key, 2**31 - 1)
    assert session.epoch == 1
    codes = ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert (unknown.value.code, wrong.value.code) == codes


def test_a_broker_refuses_more_sessions_than_its_limit_but_members_may_begin_again() -> None:
    sessions = ShareSessions(lambda: 2, lambda _: None)
    for member in ("a", "b", "a"):
        sessions.begin(SessionKey("g", member), None)
    with pytest.raises(ApiError) as refusal:
        sessions.begin(SessionKey("g", "c"), None)
    assert refusal.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_connection_that_closes_ends_its_sessions_once() -> None:
    closed: list[ShareSession] = []
    sessions, line = ShareSessions(lambda: 9, closed.append), Line()
    first, second = (sessions.begin(SessionKey("g", each), line) for each in "ab")
    replaced = sessions.begin(SessionKey("g", "a"), Line())
    line.close()
    assert closed == [second]
    assert (first.is_closed, replaced.is_closed, sessions.has("g"), len(line.when_closed)) == (True, False, True, 1)
