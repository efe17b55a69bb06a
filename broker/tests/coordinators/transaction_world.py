"""A simulated world for the transaction coordinator: time moved by hand, a log in memory, and markers that wait."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from coordinator_world import MemoryLog

from barnabas_broker.coordinators.runtime.shard import RuntimeEnvironment
from barnabas_broker.coordinators.runtime.turns import Turns
from barnabas_broker.coordinators.transactions.coordinator import TransactionCoordinator, TransactionEnvironment
from barnabas_broker.coordinators.transactions.decisions import NOBODY, Decision, TransactionCounts
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TRANSACTION_STATE, TopicPartition
from harness.manual_timers import ManualTimers

FLIGHTS = TopicPartition("flights", 0)
TIMEOUT_MS = 60_000
EXPIRATION_MS = 3_600_000


class Sending(NamedTuple):
    """A marker that is not written yet, and its partitions."""

    marker: Marker
    version: int
    partitions: Collection[TopicPartition]
    is_wanted: Callable[[], bool]
    done: Callable[[], object]


class TransactionWorld:
    """One broker's coordinator with its environment."""

    def __init__(self, version: int = 2) -> None:
        self.timers = ManualTimers()
        self.log = MemoryLog(1, self.timers)
        self.version = version
        self.unknown: set[TopicPartition] = set()
        """The partitions that the image of the coordinator lacks."""
        self.sending: list[Sending] = []
        self.next_id = 100
        self.leader_epoch = 0
        self.coordinator = self._new_coordinator()
        self._elect()

    def _new_coordinator(self) -> TransactionCoordinator:
        clock, timers = self.timers.clock, self.timers
        environment = TransactionEnvironment(
            parse_broker_config({"transactional.id.expiration.ms": str(EXPIRATION_MS)}),
            clock,
            timers,
            lambda *fields: self.sending.append(Sending(*fields)),
            lambda: self.version,
            lambda take: take(self.new_id()),
            TransactionCounts(),
            self._knows,
        )
        turns = Turns(timers, clock)
        of_runtime = RuntimeEnvironment(TRANSACTION_STATE, self.log, clock, timers, turns, lambda: True, 5_000)
        coordinator = TransactionCoordinator(environment, of_runtime, 1)
        coordinator.start()
        return coordinator

    def _knows(self, partition: TopicPartition) -> bool:
        return partition not in self.unknown

    def _elect(self) -> None:
        self.coordinator.runtime.elect(0, self.leader_epoch)
        self.timers.pass_time()

    def new_id(self) -> int:
        self.next_id += 1
        return self.next_id

    def fail_over(self) -> None:
        """Make another broker the leader of the partition; it loads the log."""
        self.coordinator.runtime.stop()
        self.leader_epoch += 1
        self.coordinator = self._new_coordinator()
        self._elect()

    def write_markers(self) -> list[Marker]:
        """Write all waiting markers; return them."""
        sending, self.sending = self.sending, []
        for each in sending:
            each.done()
        self.timers.pass_time()
        return [each.marker for each in sending]

    def _ask(self, start: Callable[[Callable[[Decision], object]], object]) -> Decision:
        answers: list[Decision] = []
        start(answers.append)
        self.timers.pass_time()
        (answer,) = answers
        return answer

    def init(self, expected: ProducerEpoch = NOBODY) -> Decision:
        new_id = self.new_id() if self.coordinator.lacks_id("pay", if_unknown=True) else -1
        return self._ask(lambda answer: self.coordinator.init_producer_id("pay", expected, TIMEOUT_MS, new_id, answer))

    def begun(self) -> ProducerEpoch:
        """Begin a transaction; return its producer."""
        producer = self.init().producer
        assert self.add(producer) is ErrorCode.NONE
        return producer

    def add(self, by: ProducerEpoch, version: int = 2, partition: TopicPartition = FLIGHTS) -> ErrorCode:
        return self._ask(lambda answer: self.coordinator.add_partitions("pay", by, [partition], version, answer)).error

    def end(self, by: ProducerEpoch, *, commit: bool = True, version: int = 2) -> Decision:
        new_id = self.new_id() if self.coordinator.lacks_id("pay", if_unknown=False) else -1
        fields: Any = {"commit": commit, "client_version": version, "new_id": new_id}
        return self._ask(lambda answer: self.coordinator.end("pay", by, answer=answer, **fields))

    def state(self) -> str:
        return self.coordinator.describe("pay").state.name
