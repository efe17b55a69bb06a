"""F30-F35: a leader and its followers over real logs; the test carries the fetches between them."""

import random
from pathlib import Path
from uuid import UUID

import pytest

from barnabas_broker.metadata.controller.decisions.fencing import IsrChange
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.leader_replica import IsrProposer, PartitionEnvironment, Purgatory
from barnabas_broker.replication.partition import CommitQueue, Partition
from barnabas_broker.storage.disk.files import OpenFiles, PosixFileSystem, Trash
from barnabas_broker.storage.logs.log_loader import open_log
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, LogPlace
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.clock import monotonic_ms
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import START_MS
from harness.manual_timers import ManualTimers

FLIGHTS = TopicPartition("flights", 0)
TOPIC_ID = UUID(int=7)
LAG_MS_MAX = 30_000


class Replicas:
    """The replicas 1, 2 and 3 of one partition."""

    def __init__(self, folder: Path, isr_size_min: int = 2) -> None:
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.fenced: set[int] = set()
        self.proposals: list[IsrChange] = []
        self.turned_away: list[int] = []
        self.state = PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=0, isr=(1, 2, 3))
        config = LogConfig(min_insync_replicas=isr_size_min)
        self.partitions = {each: self._make(each, folder / str(each), config) for each in (1, 2, 3)}
        self.show()

    def _make(self, broker_id: int, folder: Path, config: LogConfig) -> Partition:
        directory = folder / str(FLIGHTS)
        directory.mkdir(parents=True)
        environment = LogEnvironment(PosixFileSystem(), OpenFiles(100), Trash(), random.Random(0))
        place = LogPlace(log_dir=str(folder), directory=str(directory), topic_partition=FLIGHTS, config=config)
        log = open_log(environment, place, START_MS)
        context = PartitionEnvironment(
            broker_id,
            self.clock,
            lambda each, _: each not in self.fenced,
            lambda: LAG_MS_MAX,
            self._propose,
            lambda: 1,
            lambda: self.turned_away.append(broker_id),
        )
        waiters = Purgatory(self.timers).wait_list()
        return Partition(FLIGHTS, TOPIC_ID, log, 0, context, waiters, CommitQueue(self.timers))

    def _propose(self, partition: IsrProposer) -> None:
        change = partition.isr_change(confirms=False)
        assert change is not None
        self.proposals.append(change)

    @property
    def leader(self) -> Partition:
        return self.partitions[self.state.leader]

    def show(
        self, *, leader: int | None = None, isr: tuple[int, ...] | None = None, to: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        """Change the metadata, and show it to the brokers `to`."""
        elected = leader is not None
        self.state = PartitionState(
            replicas=self.state.replicas,
            leader=leader if leader is not None else self.state.leader,
            leader_epoch=self.state.leader_epoch + elected,
            isr=self.state.isr if isr is None else isr,
            partition_epoch=self.state.partition_epoch + 1,
        )
        for each in to:
            self.partitions[each].apply(self.state)

    def append(self, value: bytes, to: Partition | None = None) -> int:
        """Append a record, and return its offset."""
        batch = encode_batch([Record(0, self.clock.now_ms(), None, value)])
        leader = to or self.leader
        return leader.append_as_leader(memoryview(batch), parse_header(batch, 0), self.clock.now_ms()).base_offset

    def fetch(self, follower_id: int) -> None:
        """Do one round: send a Fetch as a follower does, and apply the answer to its log."""
        follower, leader = self.partitions[follower_id], self.leader
        at = follower.follower.fetch_position(follower.leader_epoch)
        leader.check_readable(at.leader_epoch)
        if at.last_fetched_epoch >= 0:
            epoch, end_offset = leader.end_offset_for_epoch(at.last_fetched_epoch)
            if epoch != at.last_fetched_epoch or end_offset < at.offset:
                follower.follower.diverged(epoch, end_offset)
                return
        found = leader.log.read(at.offset, 1 << 20, leader.log.log_end_offset, at_least_one_batch=True)
        leader.fetched_by(follower_id, 1, at.offset, at.log_start_offset, monotonic_ms(self.clock))
        records = memoryview(bytearray(found.file.read_at(found.position, found.length))) if found else memoryview(b"")
        follower.follower.append(
            records,
            follower.leader_epoch,
            leader.log.high_watermark,
            leader.log.log_start_offset,
            self.clock.now_ms(),
        )

    def catch_up(self, *followers: int) -> None:
        """Fetch until nothing changes any more."""
        for _ in range(4):
            for each in followers:
                self.fetch(each)

    def values(self, broker_id: int) -> bytes:
        """Return all bytes of a replica's log."""
        log = self.partitions[broker_id].log
        found = log.read(log.log_start_offset, 1 << 20, log.log_end_offset, at_least_one_batch=True)
        return found.file.read_at(found.position, found.length) if found else b""


def test_followers_become_byte_identical_and_the_high_watermark_follows_them(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    for number in range(5):
        replicas.append(b"%d" % number)
    assert replicas.leader.log.high_watermark == 0
    replicas.catch_up(2)
    assert replicas.leader.log.high_watermark == 0, "broker 3 is in sync and has no records"
    replicas.catch_up(3, 2)
    assert [each.log.high_watermark for each in replicas.partitions.values()] == [5, 5, 5]
    assert replicas.values(1) == replicas.values(2) == replicas.values(3)


def test_an_append_that_waits_for_all_replicas_is_answered_when_all_have_it(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    answers: list[ApiError | None] = []
    replicas.leader.waits.wait(replicas.append(b"x") + 1, answers.append, replicas.leader.log.high_watermark)
    replicas.catch_up(2)
    replicas.timers.turn()
    assert answers == []
    replicas.catch_up(3)
    replicas.timers.turn()
    assert answers == [None]


def test_a_waiting_append_fails_when_leadership_ends(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    answers: list[ApiError | None] = []
    replicas.leader.waits.wait(replicas.append(b"x") + 1, answers.append, replicas.leader.log.high_watermark)
    replicas.show(leader=2, isr=(2, 3))
    replicas.timers.turn()
    (answer,) = answers
    assert answer is not None
    assert answer.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_waiting_appends_fail_when_the_same_leader_is_elected_again(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    answers: list[ApiError | None] = []
    replicas.leader.waits.wait(replicas.append(b"x") + 1, answers.append, replicas.leader.log.high_watermark)
    replicas.show(leader=1)
    replicas.catch_up(2, 3)
    replicas.timers.turn()
    assert [each.code if each else each for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert replicas.leader.log.high_watermark == 1


def test_uncommitted_records_are_truncated_by_epoch_and_committed_ones_stay(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.append(b"committed")
    replicas.catch_up(2, 3)
    replicas.append(b"only on 1")
    replicas.show(leader=2, isr=(2, 3))
    replicas.append(b"of 2")
    replicas.catch_up(3, 1)
    assert replicas.leader.log.high_watermark == 2
    assert replicas.values(1) == replicas.values(2) == replicas.values(3)
    assert b"only on 1" not in replicas.values(1)


def test_a_follower_elected_with_an_old_high_watermark_keeps_committed_records(
    tmp_path: Path,
) -> None:
    """KIP-101's first scenario: truncation to the high watermark would lose committed records."""
    replicas = Replicas(tmp_path, isr_size_min=1)
    replicas.fenced.add(3)
    replicas.show(isr=(1, 2))
    replicas.append(b"committed")
    replicas.fetch(2)
    replicas.fetch(2)
    assert replicas.leader.log.high_watermark == 1
    follower = replicas.partitions[2]
    follower.log.high_watermark = 0
    replicas.show(leader=2, isr=(2,))
    assert follower.log.log_end_offset == 1
    assert follower.log.high_watermark == 1


def test_logs_that_diverged_twice_become_equal(tmp_path: Path) -> None:
    """KIP-279: the follower has epochs that the leader never had."""
    replicas = Replicas(tmp_path, isr_size_min=1)
    replicas.append(b"all")
    replicas.catch_up(2, 3)
    replicas.append(b"1 alone")
    replicas.show(leader=2, isr=(2,), to=(2, 3))
    replicas.append(b"2 alone")
    replicas.append(b"2 alone")
    replicas.show(leader=1, isr=(1,), to=(1,))
    replicas.append(b"1 again")
    replicas.show(leader=3, isr=(3,))
    replicas.append(b"3")
    replicas.catch_up(1, 2)
    assert replicas.values(1) == replicas.values(2) == replicas.values(3)
    assert replicas.leader.log.log_end_offset == 2


def test_followers_are_truncated_to_the_log_of_a_leader_without_records_of_its_epoch(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.append(b"x")
    replicas.append(b"y")
    replicas.fetch(2)
    replicas.append(b"z")
    replicas.show(leader=2, isr=(2, 3))
    replicas.show(leader=2)
    replicas.catch_up(1, 3)
    assert replicas.values(1) == replicas.values(2) == replicas.values(3)
    assert replicas.leader.log.log_end_offset == 2


def test_a_stale_leader_cannot_commit_records_that_its_followers_do_not_fetch(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    old_leader = replicas.leader
    replicas.show(leader=2, isr=(2, 3), to=(2, 3))
    answers: list[ApiError | None] = []
    old_leader.waits.wait(replicas.append(b"stale", to=old_leader) + 1, answers.append, old_leader.log.high_watermark)
    with pytest.raises(ApiError) as refusal:
        old_leader.check_readable(replicas.state.leader_epoch)
    assert refusal.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH
    replicas.timers.turn()
    assert old_leader.log.high_watermark == 0
    assert answers == []


def test_a_lagging_follower_leaves_the_isr_and_returns(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.catch_up(2, 3)
    replicas.append(b"x")
    replicas.clock.passed_ms += LAG_MS_MAX + 1
    replicas.catch_up(2)
    replicas.leader.check_isr(monotonic_ms(replicas.clock))
    (shrink,) = replicas.proposals
    assert shrink.isr.keys() == {1, 2}
    assert replicas.leader.log.high_watermark == 0, "the ISR shrinks only when the metadata says so"
    replicas.show(isr=(1, 2))
    assert replicas.leader.log.high_watermark == 1
    replicas.catch_up(3)
    assert replicas.proposals[-1].isr.keys() == {1, 2, 3}
    replicas.show(isr=(1, 2, 3))
    assert (replicas.leader.isr_shrinks, replicas.leader.isr_expands) == (1, 1)


def test_a_change_of_the_wall_clock_makes_no_follower_lag(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.catch_up(2, 3)
    replicas.clock.ahead_ms += 100 * LAG_MS_MAX
    replicas.append(b"x")
    replicas.leader.check_isr(monotonic_ms(replicas.clock))
    assert replicas.proposals == []
    replicas.catch_up(2, 3)
    replicas.clock.ahead_ms -= 200 * LAG_MS_MAX
    replicas.append(b"y")
    replicas.clock.passed_ms += LAG_MS_MAX + 1
    replicas.leader.check_isr(monotonic_ms(replicas.clock))
    assert replicas.proposals[-1].isr.keys() == {1}


def test_a_follower_that_catches_up_while_another_joins_is_proposed_next_without_a_fetch(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, isr_size_min=1)
    replicas.show(isr=(1,))
    replicas.catch_up(2)
    assert replicas.proposals[-1].isr.keys() == {1, 2}
    replicas.catch_up(3)
    assert len(replicas.proposals) == 1, "one change at a time"
    replicas.show(isr=(1, 2))
    assert replicas.proposals[-1].isr.keys() == {1, 2, 3}


def test_a_refused_proposal_leaves_the_isr_as_it_was(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.show(isr=(1, 2))
    replicas.catch_up(2, 3)
    (change,) = replicas.proposals
    replicas.leader.isr_change_refused(change)
    replicas.fenced.add(3)
    replicas.append(b"x")
    replicas.catch_up(2)
    assert replicas.leader.log.high_watermark == 1
    assert len(replicas.proposals) == 1, "a fenced broker is not proposed again"


def test_a_leader_with_too_few_in_sync_replicas_accepts_and_commits_nothing(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.append(b"x")
    replicas.fenced |= {2, 3}
    replicas.show(isr=(1,))
    with pytest.raises(ApiError) as refusal:
        replicas.leader.check_writable(all_replicas=True)
    assert refusal.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert -1 not in replicas.leader.accepted_acks
    assert replicas.leader.log.high_watermark == 0
    replicas.show(isr=(1, 2))
    replicas.catch_up(2)
    assert replicas.leader.log.high_watermark == 1


def test_a_new_leader_answers_offset_not_available_until_its_followers_have_fetched(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    replicas.append(b"x")
    replicas.fetch(2)
    replicas.fetch(3)
    replicas.show(leader=2)
    with pytest.raises(ApiError) as refusal:
        replicas.leader.check_caught_up()
    assert refusal.value.code is ErrorCode.OFFSET_NOT_AVAILABLE
    replicas.catch_up(1, 3)
    replicas.leader.check_caught_up()


def test_a_follower_adopts_the_leaders_log_start_offset(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    for _ in range(4):
        replicas.append(b"x")
    replicas.catch_up(2)
    replicas.catch_up(3, 2)
    replicas.leader.log.increment_log_start_offset(3)
    replicas.catch_up(2, 3)
    assert [each.log.log_start_offset for each in replicas.partitions.values()] == [3, 3, 3]


def test_an_empty_follower_starts_at_the_leaders_log_start_offset(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, isr_size_min=1)
    replicas.show(isr=(1,))
    for _ in range(4):
        replicas.append(b"x")
    replicas.leader.log.increment_log_start_offset(2)
    follower = replicas.partitions[2]
    with pytest.raises(ApiError) as refusal:
        replicas.fetch(2)
    assert refusal.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    follower.follower.out_of_range(2, 4, START_MS)
    replicas.catch_up(2)
    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (2, 4)


def test_a_request_for_another_leader_or_a_later_epoch_counts_as_turned_away(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path)
    with pytest.raises(ApiError):
        replicas.partitions[2].check_readable(-1)
    with pytest.raises(ApiError):
        replicas.leader.check_readable(replicas.state.leader_epoch + 1)
    replicas.leader.check_readable(replicas.state.leader_epoch)
    assert replicas.turned_away == [2, 1]
