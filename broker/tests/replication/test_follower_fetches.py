"""F31: fetches of followers, and their sessions on the leader, over real logs and a network without sockets."""

from pathlib import Path
from typing import Any

import pytest
from fetch_world import LATENCY_S, World

from barnabas_broker.replication.leader_replica import FollowerReplica
from barnabas_broker.storage.disk.files import LogFile, PosixFileSystem

ROUND_S = 3 * LATENCY_S


def test_a_follower_gets_records_within_a_round_and_the_high_watermark_with_the_next(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.timers.pass_time(1)
    for _ in range(3):
        world.append(0, records=2)
        world.timers.pass_time(ROUND_S)
        assert world.is_equal(0)
        assert world.brokers[1].partitions[0].log.high_watermark == world.ends(1)[0]
    assert world.brokers[2].partitions[0].log.high_watermark == 4
    world.timers.pass_time(0.5 + LATENCY_S)
    assert world.brokers[2].partitions[0].log.high_watermark == 6


def test_a_fetch_names_only_the_partitions_that_have_changed(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in range(50):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    assert world.named() == dict.fromkeys(range(50), 1)
    world.append(7)
    world.timers.pass_time(ROUND_S)
    assert world.named() == {7: 1}
    world.response_sizes.clear()
    world.timers.pass_time(5)
    assert world.named() == {}
    assert len(world.response_sizes) <= 10
    assert sum(world.response_sizes) < 400


def test_a_partition_that_begins_to_follow_does_not_wait_for_the_fetch_in_flight(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.timers.pass_time(0.1)
    world.lead(1, 1)
    world.append(1)
    world.timers.pass_time(2 * ROUND_S)
    assert world.is_equal(1)
    assert len(world.links) == 1


def test_followers_catch_up_with_logs_that_are_larger_than_a_response(tmp_path: Path) -> None:
    world = World(tmp_path, replica_fetch_max_bytes=4000, replica_fetch_response_max_bytes=10_000)
    for index in range(20):
        world.lead(index, 1, to=(1,))
        for _ in range(10):
            world.append(index, b"x" * 900)
    for index in range(20):
        world.show(index, (2,))
    world.timers.pass_time(0.4)
    assert world.ends(2) == world.ends(1)
    assert all(world.is_equal(index) for index in range(20))
    assert max(world.response_sizes) < 12_000


def test_a_partition_unfollowed_while_a_response_is_applied_gets_no_records_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    for index in range(8):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    append = FollowerReplica.append
    follower = world.brokers[2]

    def and_unfollow(replica: FollowerReplica, *arguments: Any) -> None:
        append(replica, *arguments)
        follower.fetchers.unfollow(follower.partitions[7])

    monkeypatch.setattr(FollowerReplica, "append", and_unfollow)
    for index in range(8):
        world.append(index, b"x" * 900_000)
    world.timers.pass_time(1)
    assert world.ends(2) == dict.fromkeys(range(7), 1) | {7: 0}


def test_a_busy_partition_does_not_starve_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, replica_fetch_max_bytes=3000, replica_fetch_response_max_bytes=3000)
    for index in range(3):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    for _ in range(20):
        world.append(0, b"x" * 2500)
        world.append(0, b"x" * 2500)
        world.append(1)
        world.append(2)
        world.timers.pass_time(ROUND_S)
    world.timers.pass_time(ROUND_S)
    assert {index: world.ends(2)[index] for index in (1, 2)} == {1: 20, 2: 20}


def test_a_leader_that_does_not_know_its_election_yet_is_asked_again_soon(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in (0, 1):
        world.lead(index, 1)
    world.append(0)
    world.timers.pass_time(0.1)
    world.lead(0, 2, to=(1,))
    world.append(1)
    world.timers.pass_time(0.05)
    assert world.is_equal(1)
    world.show(0, (2,))
    world.append(0)
    world.timers.pass_time(0.1)
    assert world.is_equal(0)
    assert world.brokers[1].suspects == world.brokers[2].suspects == []


def test_diverged_logs_are_truncated_by_epochs_until_they_are_equal(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.append(0, b"both")
    world.timers.pass_time(0.1)
    world.unreachable = {1, 2}
    for link in list(world.links):
        link.break_("cut")
    world.append(0, b"only 1", broker=1)
    world.lead(0, 2, to=(2,))
    world.append(0, b"of 2")
    world.append(0, b"of 2 again")
    world.lead(0, 1, to=(1,))
    world.append(0, b"of 1")
    world.unreachable.clear()
    world.show(0, (1, 2))
    world.timers.pass_time(2)
    assert world.is_equal(0)
    assert b"only 1" in world.bytes_of(2, 0)
    assert b"of 2" not in world.bytes_of(2, 0)


def test_a_follower_outside_the_leaders_log_begins_at_its_log_start_offset(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1, to=(1,))
    for _ in range(5):
        world.append(0)
    world.brokers[1].partitions[0].log.increment_log_start_offset(3)
    world.show(0, (2,))
    world.timers.pass_time(0.6)
    log = world.brokers[2].partitions[0].log
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    assert world.brokers[2].partitions[0].log.high_watermark == 5


def test_records_that_are_deleted_on_the_leader_are_deleted_on_followers(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.append(0, records=5)
    world.timers.pass_time(1)
    world.brokers[1].partitions[0].log.increment_log_start_offset(3)
    world.append(0)
    world.timers.pass_time(ROUND_S)
    assert world.brokers[2].partitions[0].log.log_start_offset == 3
    leadership = world.brokers[1].partitions[0].leader
    assert leadership is not None
    assert leadership.followers[2].log_start_offset == 3


def test_a_broken_link_is_opened_again_and_each_failed_try_reports_a_suspect(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.timers.pass_time(0.1)
    world.unreachable = {1}
    (link,) = world.links
    link.break_("reset")
    world.timers.pass_time(0.1)
    epoch = world.broker_epochs[1]
    assert world.brokers[2].suspects == 3 * [(1, epoch)]
    world.timers.pass_time(5)
    assert 8 <= len(world.brokers[2].suspects) <= 13
    world.append(0)
    world.unreachable.clear()
    world.timers.pass_time(1.1)
    assert world.is_equal(0)
    world.brokers[2].suspects.clear()
    (link,) = world.links
    link.break_("reset")
    world.timers.pass_time(0.1)
    assert world.brokers[2].suspects == [(1, epoch)]
    world.append(0)
    world.timers.pass_time(ROUND_S)
    assert world.is_equal(0)


def test_a_suspect_that_has_registered_again_and_not_answered_yet_is_reported_with_its_former_epoch(
    tmp_path: Path,
) -> None:
    world = World(tmp_path)
    world.lead(0, 1)
    world.timers.pass_time(0.1)
    former, world.unreachable = world.broker_epochs[1], {1}
    world.broker_epochs[1] += 1
    (link,) = world.links
    link.break_("reset")
    world.timers.pass_time(0.1)
    assert set(world.brokers[2].suspects) == {(1, former)}


def test_a_leader_that_is_silent_for_the_socket_timeout_is_reported_as_a_suspect(tmp_path: Path) -> None:
    world = World(tmp_path, replica_socket_timeout_ms=3000)
    world.lead(0, 1)
    world.timers.pass_time(2)
    world.silent = {1}
    world.timers.pass_time(2.9)
    assert world.brokers[2].suspects == []
    world.timers.pass_time(0.7)
    assert set(world.brokers[2].suspects) == {(1, world.broker_epochs[1])}
    world.silent.clear()
    world.append(0)
    world.timers.pass_time(4)
    assert world.is_equal(0)


def test_a_follower_opens_a_new_session_if_the_leader_forgot_the_old_one(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in range(3):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    world.brokers[1].sessions.close()
    world.lead(3, 1)
    for index in range(4):
        world.append(index)
    world.timers.pass_time(0.1)
    assert all(world.is_equal(index) for index in range(4))
    assert world.brokers[2].suspects == []


def test_an_unfollowed_partition_leaves_the_session_and_the_last_one_closes_the_link(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in range(3):
        world.lead(index, 1)
    world.timers.pass_time(0.1)
    follower = world.brokers[2]
    follower.fetchers.unfollow(follower.partitions[1])
    world.append(1)
    world.timers.pass_time(0.1)
    assert world.ends(2) == {0: 0, 1: 0, 2: 0}
    assert world.brokers[1].sessions.partition_counts == {2: 2}
    for index in (0, 2):
        follower.fetchers.unfollow(follower.partitions[index])
    world.timers.pass_time(0.1)
    assert world.links == set()
    follower.fetchers.follow(follower.partitions[1])
    world.timers.pass_time(0.1)
    assert world.is_equal(1)
    follower.fetchers.close()
    world.timers.pass_time(5)
    assert world.links == set()


def test_a_new_broker_epoch_of_a_follower_reaches_the_leader_for_idle_partitions_too(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in (0, 1):
        world.lead(index, 1)
    world.timers.pass_time(1)
    world.broker_epochs[2] = 5
    world.timers.pass_time(1)
    for index in (0, 1):
        leadership = world.brokers[1].partitions[index].leader
        assert leadership is not None
        assert leadership.followers[2].broker_epoch == 5
        world.append(index)
    world.timers.pass_time(ROUND_S)
    assert world.is_equal(0)
    assert world.brokers[2].suspects == []


class BadDisk(PosixFileSystem):
    """A disk that fails for the logs in directories of these names."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def open_file(self, path: str) -> LogFile:
        if any(f"/{name}/" in path for name in self.names):
            raise OSError(5, "Input/output error")
        return super().open_file(path)


def test_a_disk_failure_of_one_partition_is_reported_and_does_not_stop_the_others(tmp_path: Path) -> None:
    world = World(tmp_path, files={2: BadDisk("flights-1")})
    for index in range(3):
        world.lead(index, 1)
        world.append(index)
    world.timers.pass_time(0.1)
    assert world.ends(2) == {0: 1, 1: 0, 2: 1}
    assert [index for index, _ in world.brokers[2].failures] == [1]
    assert [each.topic_partition.partition for each in world.brokers[2].fetchers.status()] == [0, 2]


def test_a_partition_with_damaged_fetched_records_is_retried_and_does_not_stop_the_others(tmp_path: Path) -> None:
    world = World(tmp_path)
    for index in range(2):
        world.lead(index, 1)
        world.append(index, b"a value")
    file = world.brokers[1].partitions[1].log.segments.active.file
    good = file.read_at(0, 200)
    file.append(good[:-1] + b"\xff", 0)
    world.timers.pass_time(3)
    assert world.ends(2) == {0: 1, 1: 0}
    failing = {each.topic_partition.partition: each.is_failing for each in world.brokers[2].fetchers.status()}
    assert failing == {0: False, 1: True}
    tries = world.named()[1]
    assert 6 <= tries <= 9
    file.append(good, 0)
    world.timers.pass_time(1.1)
    assert world.is_equal(1)
    assert not any(each.is_failing for each in world.brokers[2].fetchers.status())


def test_a_follower_waits_for_its_minimum_of_bytes_and_no_longer_than_its_maximum_wait(tmp_path: Path) -> None:
    world = World(tmp_path, replica_fetch_min_bytes=1000)
    world.lead(0, 1)
    world.timers.pass_time(0.1)
    world.append(0, b"x" * 400)
    world.timers.pass_time(ROUND_S)
    assert world.ends(2) == {0: 0}
    world.append(0, b"x" * 600)
    world.timers.pass_time(ROUND_S)
    assert world.ends(2) == {0: 2}
    world.append(0)
    world.timers.pass_time(0.5)
    assert world.ends(2) == {0: 3}
    assert world.brokers[1].partitions[0].replication_bytes_out == len(world.bytes_of(2, 0))


def test_a_follower_that_lacks_only_uncommitted_records_has_no_lag(tmp_path: Path) -> None:
    world = World(tmp_path, replica_fetch_max_bytes=1000)
    world.lead(0, 1, replicas=(1, 2, 3), to=(1, 3))
    world.timers.pass_time(0.1)
    for _ in range(10):
        world.append(0, b"x" * 900)
    world.timers.pass_time(0.1)
    world.show(0, (2,))
    lags = []
    while not world.is_equal(0, 1, 2, 3):
        world.timers.pass_time(LATENCY_S)
        lags += [each.lag for each in world.brokers[2].fetchers.status()]
    assert len(lags) >= 10, "one batch a fetch was not here yet"
    assert max(lags) == 0, "nothing of it was committed"


def test_a_batch_damaged_on_the_leader_is_logged_hourly_and_stops_no_other_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A log loaded unread after a clean shutdown can have one; deleting the records up to it repairs replication."""
    world = World(tmp_path)
    for index in (0, 1):
        world.lead(index, 1, to=(1,))
        for _ in range(3):
            world.append(index)
    log = world.brokers[1].partitions[0].log
    path = Path(log.segments.active.path(".log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1  # In the body of the second batch.
    path.write_bytes(data)
    for index in (0, 1):
        world.show(index, to=(2,))
    world.timers.pass_time(60)
    assert world.ends(2) == {0: 0, 1: 3}
    assert [(each.topic_partition.partition, each.is_failing) for each in world.brokers[2].fetchers.status()] == [
        (0, True),
        (1, False),
    ]
    assert caplog.text.count("cannot fetch flights-0 from broker 1: the leader's batch at offset 1 is invalid") == 1
    world.timers.pass_time(2 * 3700)
    assert caplog.text.count("the leader's batch at offset 1") == 3
    world.brokers[1].partitions[0].delete_records_before(2)
    world.timers.pass_time(10)
    assert world.ends(2) == {0: 3, 1: 3}
    assert not any(each.is_failing for each in world.brokers[2].fetchers.status())
