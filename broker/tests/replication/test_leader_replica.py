"""The high watermark and the in-sync replicas follow from what the followers have fetched."""

from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.leader_replica import UNKNOWN_OFFSET, LeaderReplica

LAG_MS_MAX = 30_000
EPOCHS = {2: 20, 3: 30}


def is_eligible(broker_id: int, broker_epoch: int) -> bool:
    return EPOCHS.get(broker_id) == broker_epoch


def leader(isr: tuple[int, ...] = (1, 2, 3), end_offset: int = 10) -> LeaderReplica:
    state = PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=isr)
    return LeaderReplica(1, state, end_offset, now_ms=0, is_eligible=is_eligible)


def fetch(state: LeaderReplica, broker_id: int, offset: int, end_offset: int, now_ms: int, epoch: int = 0) -> None:
    state.followers[broker_id].fetched(epoch or EPOCHS[broker_id], offset, 0, end_offset, now_ms)


def high_watermark(state: LeaderReplica, end_offset: int, now_ms: int = 0, isr_size_min: int = 2) -> int:
    return state.high_watermark(end_offset, isr_size_min, now_ms, LAG_MS_MAX)


def test_a_new_leader_knows_no_high_watermark_before_its_followers_have_fetched() -> None:
    state = leader()
    assert high_watermark(state, 10) == UNKNOWN_OFFSET
    fetch(state, 2, 10, 10, 1)
    assert high_watermark(state, 10) == UNKNOWN_OFFSET
    fetch(state, 3, 8, 10, 1)
    assert high_watermark(state, 10) == 8


def test_replicas_out_of_sync_do_not_hold_the_high_watermark_back() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 2, 10, 10, 1)
    fetch(state, 3, 4, 10, LAG_MS_MAX + 2)
    assert high_watermark(state, 10, LAG_MS_MAX + 2) == 10


def test_a_replica_that_is_about_to_join_the_isr_holds_the_high_watermark_back() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 2, 12, 12, 5)
    fetch(state, 3, 10, 10, 4)
    assert high_watermark(state, 12, now_ms=5) == 10


def test_a_replica_with_an_unknown_broker_epoch_is_not_about_to_join_the_isr() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 2, 12, 12, 5)
    fetch(state, 3, 10, 10, 4, epoch=29)
    assert high_watermark(state, 12, now_ms=5) == 12
    assert state.isr_with_joining(10) is None


def test_a_leader_with_an_isr_below_the_minimum_has_no_high_watermark() -> None:
    state = leader(isr=(1,))
    assert high_watermark(state, 10, isr_size_min=2) == UNKNOWN_OFFSET
    assert high_watermark(state, 10, isr_size_min=1) == 10


def test_a_replica_of_a_pending_shrink_still_holds_the_high_watermark_back() -> None:
    state = leader()
    fetch(state, 2, 12, 12, 1)
    fetch(state, 3, 10, 12, 1)
    state.pending_isr = frozenset({1, 2})
    assert high_watermark(state, 12, now_ms=LAG_MS_MAX * 2) == 10


def test_a_replica_of_a_pending_expansion_already_holds_the_high_watermark_back() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 2, 12, 12, 1)
    fetch(state, 3, 11, 11, 1)
    state.pending_isr = frozenset({1, 2, 3})
    assert high_watermark(state, 12, now_ms=LAG_MS_MAX * 2) == 11


def test_a_follower_joins_the_isr_once_it_reaches_the_high_watermark_and_the_epochs_start() -> None:
    state = leader(isr=(1, 2), end_offset=10)
    fetch(state, 3, 9, 20, 1)
    assert state.isr_with_joining(high_watermark=8) is None, "it lacks records of earlier leaders"
    fetch(state, 3, 10, 20, 1)
    assert state.isr_with_joining(high_watermark=12) is None, "it lacks committed records"
    assert state.isr_with_joining(high_watermark=10) == frozenset({1, 2, 3})


def test_only_one_isr_change_is_proposed_at_a_time() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 3, 20, 20, 1)
    state.pending_isr = frozenset({1, 2, 3})
    assert state.isr_with_joining(10) is None
    assert state.isr_without_laggards(20, LAG_MS_MAX * 9, LAG_MS_MAX) is None


def test_a_follower_without_fetches_leaves_the_isr_after_the_maximum_lag() -> None:
    state = leader()
    fetch(state, 2, 10, 10, 1)
    assert state.isr_without_laggards(10, LAG_MS_MAX, LAG_MS_MAX) is None
    assert state.isr_without_laggards(10, LAG_MS_MAX + 1, LAG_MS_MAX) == frozenset({1, 2})


def test_an_idle_follower_that_has_all_records_stays_in_the_isr() -> None:
    state = leader()
    fetch(state, 2, 10, 10, 1)
    fetch(state, 3, 10, 10, 1)
    assert state.isr_without_laggards(10, LAG_MS_MAX * 100, LAG_MS_MAX) is None


def test_the_lag_of_a_follower_begins_with_the_first_append_that_it_lacks() -> None:
    state = leader()
    fetch(state, 2, 10, 10, 1)
    fetch(state, 3, 10, 10, 1)
    idle_ms = LAG_MS_MAX * 100
    state.appended(10, idle_ms)
    fetch(state, 2, 11, 11, idle_ms + 1)
    assert state.isr_without_laggards(11, idle_ms + LAG_MS_MAX, LAG_MS_MAX) is None
    assert state.isr_without_laggards(11, idle_ms + LAG_MS_MAX + 1, LAG_MS_MAX) == frozenset({1, 2})


def test_a_follower_that_is_always_one_fetch_behind_is_in_sync() -> None:
    state = leader()
    fetch(state, 2, 10, 10, 1)
    for step in range(1, 100):
        now_ms = step * 1000
        fetch(state, 3, 10 * step, 10 * (step + 1), now_ms)
    assert state.followers[3].is_caught_up(1001, 99_000 + 29_000, LAG_MS_MAX)


def test_a_follower_that_falls_further_and_further_behind_is_not_in_sync() -> None:
    state = leader()
    for step in range(1, 100):
        fetch(state, 3, step, 10 * (step + 1), step * 1000)
    assert not state.followers[3].is_caught_up(1001, 99_000, LAG_MS_MAX)


def test_the_progress_of_a_follower_is_kept_until_it_is_no_replica_any_more() -> None:
    state = leader()
    fetch(state, 2, 10, 10, 1)
    state.committed(PartitionState(replicas=(1, 2, 4), leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=7), 5)
    assert state.followers[2].log_end_offset == 10
    assert sorted(state.followers) == [2, 4]
    assert high_watermark(state, 10, now_ms=5) == 10


def test_a_follower_removed_for_its_lag_rejoins_only_after_it_has_fetched_more() -> None:
    """With a minimum ISR of two the high watermark stands still, so that its old offset would always suffice."""
    state = leader(isr=(1, 2))
    fetch(state, 2, 10, 10, 1)
    late_ms = LAG_MS_MAX * 2
    assert state.isr_without_laggards(12, late_ms, LAG_MS_MAX) == frozenset({1})
    state.committed(PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=(1,), partition_epoch=1), late_ms)
    assert high_watermark(state, 12, late_ms) == UNKNOWN_OFFSET
    assert state.isr_with_joining(10) is None
    fetch(state, 2, 10, 12, late_ms)  # A follower whose disk is full asks for the same again.
    assert state.isr_with_joining(10) is None
    fetch(state, 2, 12, 12, late_ms)
    assert state.isr_with_joining(10) == frozenset({1, 2})


def test_a_refused_proposal_is_not_made_again_with_every_fetch() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 3, 10, 10, 1)
    state.pending_isr = state.isr_with_joining(10)
    state.refused()
    fetch(state, 3, 10, 10, 2)
    assert (state.pending_isr, state.isr_with_joining(10)) == (None, None)
    state.committed(PartitionState(replicas=(1, 2, 3), leader=1, leader_epoch=5, isr=(1, 2), partition_epoch=1), 3)
    assert state.isr_with_joining(10) == frozenset({1, 2, 3})


def test_partitions_with_the_same_isr_share_one_set() -> None:
    assert leader().isr is leader().isr
