"""The decisions of the share coordinator: each request, in each state, with each epoch."""

from typing import Any, NamedTuple

import pytest
from share_state_world import GROUP, TASKS, acknowledged, available, change

from barnabas_broker.coordinators.share_state import shard
from barnabas_broker.coordinators.share_state.shard import Circumstances, StateDecision
from barnabas_broker.coordinators.share_state.share_state import (
    InitializeEntry,
    ReadEntry,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas_core.errors import ErrorCode

KEY = SharePartitionKey(GROUP, *TASKS)
NEGATIVE = KEY._replace(partition=-1)
AROUND = Circumstances(is_known=True, now_ms=7, updates_max=500)
UNKNOWN = AROUND._replace(is_known=False)
STORED = ShareState(3, 5, 4, 10, 2, 1, 1, (available(10, 11), acknowledged(12, 13)))
OK, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
FENCED_LEADER, FENCED_STATE = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH
NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Row(NamedTuple):
    """A request, the state that it finds, and what becomes of it."""

    request: str
    found: ShareState | None
    epochs: tuple[int, int]
    """The state epoch and the leader epoch of the request."""
    error: ErrorCode
    writes: str = ""
    """The kind of the record: snapshot, update, tombstone, or none."""
    key: SharePartitionKey = KEY
    around: Circumstances = AROUND


FULL = STORED._replace(updates=500)
ROWS = [
    Row("initialize", None, (0, 0), OK, "snapshot"),
    Row("initialize", None, (-1, 0), INVALID),
    Row("initialize", None, (0, 0), INVALID, key=NEGATIVE),
    Row("initialize", None, (0, 0), NO_TOPIC, around=UNKNOWN),
    Row("initialize", STORED, (4, 0), FENCED_STATE),
    Row("initialize", STORED, (4, 0), FENCED_STATE, around=UNKNOWN),
    Row("initialize", STORED, (5, 0), OK),  # Apache Kafka forgets the state.
    Row("initialize", STORED, (6, 0), OK, "snapshot"),
    Row("write", None, (5, 4), INVALID),
    Row("write", None, (-1, 4), INVALID),
    Row("write", STORED, (5, 4), INVALID, key=NEGATIVE),
    Row("write", STORED, (5, -1), INVALID),
    Row("write", STORED, (-1, 4), INVALID),
    Row("write", STORED, (5, 3), FENCED_LEADER),
    Row("write", STORED, (4, 3), FENCED_LEADER),
    Row("write", STORED, (4, 4), FENCED_STATE),
    Row("write", STORED, (5, 4), NO_TOPIC, around=UNKNOWN),
    Row("write", STORED, (5, 4), OK, "update"),
    Row("write", STORED, (9, 9), OK, "update"),
    Row("write", FULL, (5, 4), OK, "snapshot"),
    Row("read", None, (0, 0), INVALID),
    Row("read", STORED, (0, -1), INVALID),
    Row("read", STORED, (0, 4), INVALID, key=NEGATIVE),
    Row("read", STORED, (0, 3), FENCED_LEADER),
    Row("read", STORED, (0, 4), NO_TOPIC, around=UNKNOWN),
    Row("read", STORED, (0, 4), OK),
    Row("read", STORED, (0, 5), OK, "update"),
    Row("read", FULL, (0, 5), OK, "snapshot"),
    Row("summary", None, (0, 0), OK),
    Row("summary", STORED, (0, -1), OK),
    Row("summary", STORED, (0, 3), OK),
    Row("summary", STORED, (0, 0), INVALID, key=NEGATIVE),
    Row("summary", STORED, (0, 0), NO_TOPIC, around=UNKNOWN),
    Row("delete", None, (0, 0), OK),
    Row("delete", STORED, (0, 0), OK, "tombstone"),
    Row("delete", STORED, (0, 0), INVALID, key=NEGATIVE),
    Row("delete", STORED, (0, 0), NO_TOPIC, around=UNKNOWN),
]


def decide(row: Row) -> StateDecision:
    state_epoch, leader_epoch = row.epochs
    if row.request == "initialize":
        return shard.initialize(row.key, row.found, InitializeEntry(TASKS, state_epoch, 0), row.around)
    if row.request == "write":
        entry = change(acknowledged(10, 10), start=11, state_epoch=state_epoch, leader_epoch=leader_epoch)
        return shard.write(row.key, row.found, entry, row.around)
    if row.request == "read":
        return shard.read(row.key, row.found, ReadEntry(TASKS, leader_epoch), row.around)
    decide_alone: Any = {"summary": shard.read_summary, "delete": shard.delete}[row.request]
    found: StateDecision = decide_alone(row.key, row.found, row.around)
    return found


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.request}-{row.epochs}-{row.error.name}" for row in ROWS])
def test_a_request_is_decided_as_by_apache_kafka(row: Row) -> None:
    decision = decide(row)
    assert decision.outcome.error is row.error
    record = decision.record
    if record is None:
        assert row.writes == ""
    else:
        kind = "tombstone" if record.state is None else "update" if record.is_update else "snapshot"
        assert kind == row.writes


def written(row: Row) -> ShareState:
    record = decide(row).record
    assert record is not None
    assert record.state is not None
    return record.state


def test_initialize_forgets_the_batches_and_the_leader_epoch_and_counts_the_snapshot() -> None:
    assert written(Row("initialize", STORED, (6, 0), OK)) == ShareState(4, 6, 0, 0, 0, 7, 7)


@pytest.mark.parametrize(("start_offset", "count"), [(-1, -1), (0, 0), (12, 0)])
def test_the_count_of_a_new_state_is_unknown_without_a_start_offset(start_offset: int, count: int) -> None:
    record = shard.initialize(KEY, None, InitializeEntry(TASKS, 1, start_offset), AROUND).record
    assert record is not None
    assert record.state is not None
    assert (record.state.start_offset, record.state.delivery_complete_count) == (start_offset, count)


def test_write_changes_neither_epoch() -> None:
    state = written(Row("write", STORED, (9, 9), OK))
    assert (state.state_epoch, state.leader_epoch) == (5, 4)


def test_read_stores_a_higher_leader_epoch_and_nothing_else() -> None:
    state = written(Row("read", STORED, (0, 9), OK))
    assert state == STORED._replace(leader_epoch=9, batches=())


@pytest.mark.parametrize(
    ("start", "count", "expected"),
    [(9, 7, (10, 2)), (10, 7, (10, 7)), (10, 1, (10, 2)), (12, 1, (12, 1)), (-1, -1, (10, 2))],
)
def test_the_start_offset_never_goes_back_and_the_count_belongs_to_it(
    start: int, count: int, expected: tuple[int, int]
) -> None:
    entry = change(start=start, complete=count, state_epoch=5, leader_epoch=4)
    record = shard.write(KEY, STORED, entry, AROUND).record
    assert record is not None
    assert record.state is not None
    assert (record.state.start_offset, record.state.delivery_complete_count) == expected


def test_an_update_has_only_the_changed_batches_from_the_start_offset_on() -> None:
    entry = change(acknowledged(8, 10), acknowledged(11, 11), start=10, state_epoch=5, leader_epoch=4)
    record = shard.write(KEY, STORED, entry, AROUND).record
    assert record is not None
    assert record.state is not None
    assert record.state.batches == [acknowledged(10, 11)]


def test_the_snapshot_after_many_updates_has_all_batches() -> None:
    state = written(Row("write", FULL, (5, 4), OK))
    assert state.batches == [available(11, 11), acknowledged(12, 13)]
    assert (state.snapshot_epoch, state.create_ms, state.write_ms, state.updates) == (4, 7, 7, 0)


@pytest.mark.parametrize(
    "batch", [StateBatch(5, 4, 2, 1), StateBatch(-1, 4, 2, 1), StateBatch(4, 4, 1, 1), StateBatch(4, 4, 2, -1)]
)
def test_a_batch_that_no_leader_writes_is_refused_with_its_values(batch: StateBatch) -> None:
    outcome = shard.write(KEY, STORED, change(batch, state_epoch=5, leader_epoch=4), AROUND).outcome
    assert outcome.error is INVALID
    assert f"{batch.first_offset} to {batch.last_offset}" in (outcome.message or "")
