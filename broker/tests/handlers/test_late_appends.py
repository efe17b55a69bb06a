"""A batch waits for the helper while it times out, its topic or leader changes, or its client disconnects."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from one_replica import FLIGHTS, HERE, NOW_MS, OTHER, led
from producing_broker import MANY, TOPIC_ID, Client, Producing, true_batch

from barnabas_broker.handlers.pending_produce import CHECK_MS_MIN
from barnabas_broker.metadata.documents import tombstone_key, topic_key
from barnabas_broker.metadata.model import TombstoneDocument, TopicDocument
from barnabas_core.config.log_config import CleanupPolicy, LogConfig
from barnabas_core.errors import ErrorCode

LARGE = bytes(true_batch(MANY))
COMPACTED = LogConfig(cleanup_policies=frozenset({CleanupPolicy.COMPACT}))


@pytest.fixture
def broker(tmp_path: Path) -> Producing:
    return Producing(tmp_path, COMPACTED)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_that_timed_out_is_not_appended_after_later_ones(broker: Producing, acks: int) -> None:
    client = Client(broker)
    client.begin(LARGE, acks=acks)
    muted = [client.is_muted]
    broker.timers.pass_time(CHECK_MS_MIN / 1000)
    [late] = client.results()
    assert (late.error_code, late.error_message.split(",")[0]) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "the batch was not appended",
    )
    assert [*muted, client.is_muted] == [True, False]
    client.begin(bytes(true_batch(1)))
    assert client.results()[0].base_offset == 0
    broker.run_what_was_spawned()
    assert client.answers == []
    assert broker.partition.log.log_end_offset == 1


def test_the_timeout_of_a_request_begins_with_the_append(broker: Producing) -> None:
    broker.show(led(HERE, 2, HERE, OTHER, replicas=2))
    client = Client(broker)
    client.begin(LARGE, acks=-1)
    broker.timers.pass_time(5)
    broker.run_what_was_spawned()
    broker.timers.pass_time(1.4)
    assert client.answers == []
    broker.timers.pass_time(0.2)
    late = client.results()[0]
    assert (late.error_code, late.error_message.split(",")[0]) == (
        ErrorCode.REQUEST_TIMED_OUT,
        "the batch was appended",
    )


def test_a_batch_without_acks_that_times_out_closes_the_connection(broker: Producing) -> None:
    client = Client(broker)
    client.begin(LARGE, acks=0)
    broker.timers.pass_time(CHECK_MS_MIN / 1000)
    assert client.closed is not None
    assert "REQUEST_TIMED_OUT: the batch was not appended" in client.closed
    broker.run_what_was_spawned()
    assert broker.partition.log.log_end_offset == 0


@pytest.mark.parametrize(("acks", "appended"), [(1, 0), (-1, 0), (0, MANY)])
def test_a_batch_of_a_disconnected_client_is_appended_only_without_acks(
    broker: Producing, acks: int, appended: int
) -> None:
    client = Client(broker)
    client.begin(LARGE, acks=acks)
    if client.give_up is not None:
        client.give_up()
    broker.run_what_was_spawned()
    assert broker.partition.log.log_end_offset == appended


def leads_no_more(broker: Producing) -> None:
    broker.show(led(OTHER, 2, OTHER, replicas=2))


def is_deleted(broker: Producing) -> None:
    broker.show_only((tombstone_key(TOPIC_ID), TombstoneDocument(FLIGHTS.topic, TOPIC_ID, NOW_MS, 1)))


def is_made_again(broker: Producing) -> None:
    is_deleted(broker)
    again = TopicDocument(FLIGHTS.topic, UUID(int=8), (led(HERE, 1, HERE, replicas=1),), {})
    broker.show_only((topic_key(FLIGHTS.topic), again))


@pytest.mark.parametrize(
    ("happens", "version", "error"),
    [
        (leads_no_more, 12, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (leads_no_more, 13, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (is_deleted, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (is_deleted, 13, ErrorCode.UNKNOWN_TOPIC_ID),
        (is_made_again, 12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (is_made_again, 13, ErrorCode.UNKNOWN_TOPIC_ID),
    ],
)
def test_a_batch_is_refused_if_its_topic_or_leader_changed_while_it_waited(
    broker: Producing, happens: Callable[[Producing], None], version: int, error: ErrorCode
) -> None:
    client = Client(broker, version=version)
    client.begin(LARGE)
    happens(broker)
    broker.timers.pass_time(1)
    broker.run_what_was_spawned()
    assert client.results()[0].error_code == error
    assert not client.is_muted
    if happens is not is_deleted:
        assert broker.partition.log.log_end_offset == 0


def test_a_connection_continues_after_the_append_and_gets_its_response_after_replication(
    broker: Producing,
) -> None:
    broker.show(led(HERE, 2, HERE, OTHER, replicas=2))
    client = Client(broker)
    client.begin(LARGE, acks=-1)
    muted = [client.is_muted]
    broker.run_what_was_spawned()
    assert ([*muted, client.is_muted], client.answers) == ([True, False], [])
    client.begin(bytes(true_batch(1)), acks=-1)
    broker.partition.fetched_by(OTHER, -1, MANY + 1, 0, NOW_MS)
    broker.timers.pass_time(0)
    assert [client.results()[0].base_offset for _ in range(2)] == [MANY, 0]
