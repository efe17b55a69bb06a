"""The response to Produce with acks=1 and `flush.messages` waits until the log is synced."""

from pathlib import Path
from typing import Any

import pytest
from producing_broker import Client, Producing, true_batch

from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.logs.log import LogAppend
from barnabas_broker.storage.logs.log_syncs import WaitingLog
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ErrorCode


def awaiting(path: Path) -> tuple[Producing, Client, list[WaitingLog]]:
    due: list[WaitingLog] = []
    broker = Producing(path, LogConfig(flush_messages=1))
    broker.logs.on_sync_due = due.append
    return broker, Client(broker), due


def test_the_response_waits_for_the_sync_while_the_connection_continues(tmp_path: Path) -> None:
    broker, client, due = awaiting(tmp_path)
    for _ in range(2):
        client.begin(bytes(true_batch()))
    broker.timers.pass_time(0)
    assert client.answers == []
    assert not client.is_muted
    due[0].flush()
    broker.replicas.synced(broker.partition.topic_partition)
    broker.timers.pass_time(0)
    assert [client.results()[0].base_offset for _ in range(2)] == [3, 0]


def test_a_produce_request_times_out_if_the_sync_takes_too_long(tmp_path: Path) -> None:
    broker, client, _ = awaiting(tmp_path)
    client.begin(bytes(true_batch()))
    broker.timers.pass_time(2)
    [result] = client.results()
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "flush.messages" in result.error_message


def test_an_error_in_one_batch_ends_the_wait_of_the_whole_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dispatcher closes the connection. A later callback of the log or a timer that raised would end the broker."""
    broker, client, due = awaiting(tmp_path)
    append, appended = Partition.append_as_leader, iter((True, False))

    def buggy(partition: Partition, *arguments: Any) -> LogAppend:
        assert next(appended), "a bug"
        return append(partition, *arguments)

    monkeypatch.setattr(Partition, "append_as_leader", buggy)
    with pytest.raises(AssertionError, match="a bug"):
        client.begin(bytes(true_batch()), bytes(true_batch()))
    due[0].flush()
    broker.replicas.synced(broker.partition.topic_partition)
    broker.timers.pass_time(2)
    assert client.answers == []
