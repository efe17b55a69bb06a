"""The rows of a share group, whose lag only its coordinator knows."""

from barnabas_console.model.snapshot import GroupSeen, Member, Seen, Snapshot, Unknown
from barnabas_core.topic_partition import TopicPartition
from barnabas_lag.evaluation.lags import PartitionReading

FIRST, SECOND = TopicPartition("tasks", 0), TopicPartition("tasks", 1)


def shown(members: int) -> Snapshot:
    """Return a snapshot with a share group that has finished records behind the start offset of one partition."""
    workers = [Member(f"id-{n}", f"worker-{n}", "10.0.0.7", (FIRST,), 3) for n in range(members)]
    group = GroupSeen("workers", "share", "Stable", 1, workers, {FIRST: 2}, 3, {FIRST: 1})
    reading = PartitionReading(leader=1, replicas=(1,), isr=(1,), oldest=0, end=9, stable=9)
    return Snapshot(Seen(0.0, "c", (), {FIRST: reading, SECOND: reading}, {}, {"workers": group}, ()))


def test_the_lag_of_a_share_group_is_what_its_coordinator_reports() -> None:
    first, second = shown(1).lags["workers"]
    assert (first.committed, first.end, first.lag, first.client_id) == (2, 9, 1, "worker-0")
    assert second.lag is Unknown.NOT_YET, "unknown is not 0"


def test_a_row_names_some_of_the_members_that_share_a_partition() -> None:
    assert shown(5).lags["workers"][0].client_id == "worker-0, worker-1, worker-2 and 2 more"
