"""acks=1 with `flush.messages`: the answer comes once the log is synced, and not before."""

from pathlib import Path

from producing_broker import Client, Producing, true_batch

from barnabas_broker.storage.logs.unsynced_log import UnsyncedLog
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ErrorCode


def awaiting(path: Path) -> tuple[Producing, Client, list[UnsyncedLog]]:
    due: list[UnsyncedLog] = []
    broker = Producing(path, LogConfig(flush_messages=1))
    broker.logs.on_sync_due = due.append
    return broker, Client(broker), due


def test_the_answer_waits_for_the_sync_and_the_connection_reads_on(tmp_path: Path) -> None:
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


def test_a_sync_that_takes_longer_than_the_client_waits_is_told(tmp_path: Path) -> None:
    broker, client, _ = awaiting(tmp_path)
    client.begin(bytes(true_batch()))
    broker.timers.pass_time(2)
    [result] = client.results()
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "flush.messages" in result.error_message
