"""A log that counts as complete after a power cut has all acknowledged records, after any settings and truncations."""

from random import Random
from uuid import UUID

import pytest
from msgspec.structs import replace

from barnabas_broker.storage.disk.checkpoints import LastIncarnation
from barnabas_broker.storage.disk.files import OpenFiles, Trash
from barnabas_broker.storage.log_dirs.log_dir import BrokerIdentity, Kept
from barnabas_broker.storage.log_dirs.log_dir_loader import TopicLookup
from barnabas_broker.storage.log_dirs.log_manager import LogManager, LogManagerSettings
from barnabas_broker.storage.logs.log_syncs import LogEnvironment, WaitingLog
from barnabas_broker.storage.logs.truncation import truncate_to
from barnabas_broker.wire.record_batch import parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import LogConfig
from barnabas_core.topic_partition import TopicPartition
from harness.manual_clock import ManualClock
from simulation.disk import SimulatedDisk

TOPIC_ID = UUID(int=7)
FLIGHTS = TopicPartition("flights", 0)
STEPS = 12
SMALL = LogConfig(segment_bytes=300)
SETTINGS = (replace(SMALL, flush_messages=1), SMALL)


class Life:
    """A log dir with one log, whose records are acknowledged as soon as its settings allow."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = SimulatedDisk(lambda: 0)
        self.disk.make_dir("/logs")
        self.due: list[WaitingLog] = []
        self.start(machine_ran_on=True)
        self.disk.sync_dir("/")
        self.logs.create(FLIGHTS, TOPIC_ID, random.choice(SETTINGS))
        self.acknowledged = 0

    def start(self, *, machine_ran_on: bool) -> None:
        environment = LogEnvironment(self.disk, OpenFiles(100), Trash(), Random(0))
        settings, config = LogManagerSettings(["/logs"]), self.random.choice(SETTINGS)
        topics = TopicLookup(lambda _, number: None, lambda _: TOPIC_ID)
        self.logs = LogManager(environment, ManualClock(), settings, BrokerIdentity("c", 1), lambda _: config, topics)
        self.logs.on_sync_due = self.due.append
        self.logs.load(last_incarnation=LastIncarnation(machine_ran_on=machine_ran_on))

    def step(self) -> None:
        log = self.logs.logs[FLIGHTS]
        match self.random.choice(("append", "append", "append", "sync", "settings", "checkpoint", "cut", "crash")):
            case "append":
                data = memoryview(encode_batch([Record(0, 0, None, b"value")]))
                log.append(data, parse_header(data, 0), 1, 0)
            case "sync":
                for due in self.due:
                    due.flush()
            case "settings":
                log.configure(self.random.choice(SETTINGS))
            case "checkpoint":
                self.logs.checkpoint(lambda _: None)
            case "cut":
                truncate_to(log, max(self.acknowledged, log.log_end_offset - 2))
            case "crash":
                self.disk.process_ends()
                self.due.clear()
                self.start(machine_ran_on=True)
        log = self.logs.logs[FLIGHTS]
        self.acknowledged = max(self.acknowledged, log.syncs.ack_end_offset(log.log_end_offset))

    def lose_power(self) -> None:
        self.disk.lose_power(self.random)
        self.disk.process_ends()
        self.start(machine_ran_on=False)


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_a_log_that_counts_as_complete_after_a_power_cut_has_all_acknowledged_records(first_seed: int) -> None:
    whole = 0
    for seed in range(first_seed, first_seed + 100):
        life = Life(Random(seed))
        for _ in range(life.random.randrange(STEPS)):
            life.step()
        life.lose_power()
        log = life.logs.get(FLIGHTS)
        if log is not None and life.logs.kept(log) is Kept.SYNCED:
            whole += 1
            assert log.log_end_offset >= life.acknowledged, f"seed {seed}"
    assert 20 < whole < 90
