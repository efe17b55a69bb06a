"""F26, F28, F64: requests about the log dirs of replicas that exist, that come later, or whose disks fail."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import msgspec
import pytest
from asked_in_turns import ask
from one_replica import AWAY, FLIGHTS, HERE, OTHER, Broker, led

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.replication.fetch_session import UNLIMITED, LogMover, Throttle
from barnabas_broker.storage.errors import LogDirFailed, LogDirRefused, StorageError
from barnabas_broker.wire.messages import AlterReplicaLogDirsRequest, DescribeLogDirsRequest
from barnabas_core.config.log_config import LogConfig
from barnabas_core.errors import ErrorCode

NOWHERE = PartitionState((OTHER, AWAY), OTHER, 4, (OTHER, AWAY), partition_epoch=4)
COMES = led(OTHER, 5, OTHER, HERE)
Dir = AlterReplicaLogDirsRequest.AlterReplicaLogDir


class Asked:
    """Broker 1 with the log dirs `logs` and `more`, and its answers."""

    def __init__(self, folder: Path, state: PartitionState) -> None:
        self.broker = Broker(folder, state)
        self.logs, self.more = str(folder / "logs"), str(folder / "more")
        throttle = Throttle(self.broker.clock, lambda: UNLIMITED)
        mover = LogMover(self.broker.logs, self.broker.replicas, throttle, lambda moving: moving.close(), asyncio.sleep)
        self.handler_environment = cast(
            HandlerEnvironment,
            SimpleNamespace(
                mover=mover,
                logs=self.broker.logs,
                replicas=self.broker.replicas,
                answers=LargeResponses(self.broker.clock, self.broker.timers),
            ),
        )

    def move(self, *paths: str, partition: int = 0) -> list[ErrorCode]:
        """Ask for moves to these paths in one request, and return the answers in the same order."""
        topic = Dir.AlterReplicaLogDirTopic(name=FLIGHTS.topic, partitions=[partition])
        request = AlterReplicaLogDirsRequest(dirs=[Dir(path=path, topics=[topic]) for path in paths])
        (answered,) = ask(self.handler_environment, request, 2).answer.results
        return [ErrorCode(each.error_code) for each in answered.partitions]

    def described(self) -> dict[str, int]:
        """Return the error of each log dir."""
        answer = ask(self.handler_environment, DescribeLogDirsRequest(topics=None), 2).answer
        return {each.log_dir: each.error_code for each in answer.results}

    def lose(self, path: str, failure: type[StorageError] = LogDirFailed) -> None:
        log_dir = next(each for each in self.broker.logs.log_dirs if each.path == path)
        log_dir.fail(failure(path, "the disk failed"))

    def log_dir(self) -> str:
        return self.broker.partition.log.log_dir


def test_a_later_replica_is_created_in_the_log_dir_that_was_requested_last(tmp_path: Path) -> None:
    asked = Asked(tmp_path, NOWHERE)
    answers = asked.move(asked.logs, asked.more, "/nowhere")
    assert answers == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.LOG_DIR_NOT_FOUND]
    asked.broker.show(COMES)
    assert asked.log_dir() == asked.more


def test_a_log_dir_can_be_requested_for_a_partition_that_does_not_exist_yet(tmp_path: Path) -> None:
    asked = Asked(tmp_path, led(HERE, 4, HERE))
    assert asked.move(asked.more, partition=1) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    asked.broker.show(led(HERE, 4, HERE), led(HERE, 4, HERE))
    assert asked.broker.replicas.lookup.find(FLIGHTS.topic, None, 1).log.log_dir == asked.more


@pytest.mark.parametrize("failure", [LogDirFailed, LogDirRefused])
@pytest.mark.parametrize("state", [NOWHERE, led(HERE, 4, HERE)], ids=["not-here", "here"])
def test_a_move_to_an_offline_log_dir_is_refused_and_the_replica_stays_online(
    tmp_path: Path, state: PartitionState, failure: type[StorageError]
) -> None:
    asked = Asked(tmp_path, state)
    asked.lose(asked.more, failure)
    expected = ErrorCode.REPLICA_NOT_AVAILABLE if state is NOWHERE else ErrorCode.NONE
    assert asked.move(asked.more, asked.logs) == [ErrorCode.KAFKA_STORAGE_ERROR, expected]
    assert asked.broker.offline_reports == []
    if state is not NOWHERE:
        assert asked.broker.error_of_read() is None


def test_a_replica_is_created_in_another_log_dir_if_the_requested_one_is_offline(tmp_path: Path) -> None:
    asked = Asked(tmp_path, NOWHERE)
    asked.move(asked.more)
    asked.lose(asked.more)
    asked.broker.show(COMES)
    assert asked.log_dir() == asked.logs


def test_a_requested_log_dir_applies_to_the_next_creation_only(tmp_path: Path) -> None:
    asked = Asked(tmp_path, NOWHERE)
    asked.move(asked.more)
    asked.broker.show(COMES)
    assert asked.log_dir() == asked.more
    asked.broker.show(msgspec.structs.replace(NOWHERE, leader_epoch=6, partition_epoch=6))
    asked.broker.show(led(OTHER, 7, OTHER, HERE))
    assert asked.log_dir() == asked.logs


def test_a_request_refused_for_an_offline_replica_does_not_apply_to_its_next_creation(tmp_path: Path) -> None:
    asked = Asked(tmp_path, led(HERE, 4, HERE, OTHER))
    asked.broker.lose_disk()
    assert asked.move(asked.more) == [ErrorCode.KAFKA_STORAGE_ERROR]
    asked.broker.show(NOWHERE)
    asked.broker.find_disk()
    asked.broker.show(COMES)
    assert asked.log_dir() == asked.logs


def test_an_existing_log_cancels_the_request_for_another_log_dir(tmp_path: Path) -> None:
    asked = Asked(tmp_path, NOWHERE)
    asked.move(asked.more)
    asked.broker.logs.create(FLIGHTS, UUID(int=7), LogConfig(), asked.logs)
    asked.broker.show(COMES)
    asked.broker.show(NOWHERE)
    asked.broker.show(COMES)
    assert asked.log_dir() == asked.logs


def test_a_log_dir_that_failed_a_moment_ago_is_described_as_offline(tmp_path: Path) -> None:
    asked = Asked(tmp_path, led(HERE, 4, HERE))
    Path(asked.more).rename(tmp_path / "away")
    assert asked.described() == {asked.logs: ErrorCode.NONE, asked.more: ErrorCode.KAFKA_STORAGE_ERROR}
