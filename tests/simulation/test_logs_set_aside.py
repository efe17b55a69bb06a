"""A log that was set aside has all its records when its topic is back, as any other."""

from random import Random
from uuid import UUID

import pytest

from barnabas_broker.storage.disk.open_files import OpenFiles
from barnabas_broker.storage.disk.trash import Trash
from barnabas_broker.storage.log_dirs.log_dir_owner import BrokerIdentity
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.log_dirs.topic_lookup import TopicLookup
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.logs.log_environment import LogEnvironment
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock
from simulation.disk import SimulatedDisk

FLIGHTS = TopicPartition("flights", 0)
CONFIG = LogConfig()
RECORDS = 5


def test_one_that_somebody_has_removed_leaves_the_shutdown_clean() -> None:
    disk = SimulatedDisk(lambda: 0)
    disk.make_dir("/logs")
    logs = started(disk)
    append(logs.create(FLIGHTS, UUID(int=7), CONFIG), RECORDS)
    logs.set_aside(FLIGHTS, "its document has vanished")
    disk.remove(next(iter(logs.strays)).directory)
    logs.shutdown(lambda _: None)
    disk.process_ends()
    assert started(disk).was_clean


@pytest.mark.parametrize("seed", range(20))
def test_also_after_a_clean_shutdown_and_a_power_cut(seed: int) -> None:
    """The broker counts as one that lacks nothing then."""
    disk = SimulatedDisk(lambda: 0)
    disk.make_dir("/logs")
    logs = started(disk)
    append(logs.create(FLIGHTS, UUID(int=7), CONFIG), RECORDS)
    logs.set_aside(FLIGHTS, "its document has vanished")
    logs.shutdown(lambda _: None)
    disk.lose_power(Random(seed))
    disk.process_ends()
    logs = started(disk)
    assert logs.was_clean
    assert logs.logs[FLIGHTS].log_end_offset == RECORDS


def started(disk: SimulatedDisk) -> LogManager:
    """Its topic is back at each start."""
    environment = LogEnvironment(disk, OpenFiles(100), Trash(), Random(0))
    settings, topics = LogManagerSettings(["/logs"]), TopicLookup(lambda *_: FLIGHTS)
    logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("cluster", 1), lambda _: CONFIG, topics)
    logs.load()
    return logs


def append(log: Log, count: int) -> None:
    for _ in range(count):
        data = memoryview(encode_batch([Record(0, 0, None, b"value")]))
        log.append(data, parse_header(data, 0), 1, 0)
