"""Scenarios of the transactional id `pay` and its coordinator, as documents (`harness.scenarios`).

Producers are `ID/EPOCH`. The scenarios contain all rows of the table of states (`decisions.py`).
"""

from pathlib import Path

import pytest
from transaction_world import EXPIRATION_MS, TIMEOUT_MS, TransactionWorld

from barnabas_broker.coordinators.transactions.decisions import NOBODY, Decision
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ApiError
from barnabas_core.topic_partition import TopicPartition
from harness.scenarios import check_scenario

SCENARIOS = sorted((Path(__file__).parent / "transaction_scenarios").glob("*.txt"))


def producer(text: str) -> ProducerEpoch:
    return ProducerEpoch(*map(int, text.split("/")))


class Coordinator:
    """The commands. A `commit` or `abort` is an EndTxn; `markers` writes all markers."""

    def __init__(self) -> None:
        self._world = TransactionWorld()
        self._answers: list[str] = []

    def init(self, expected: str = "") -> None:
        self._answered(self._world.init(producer(expected) if expected else NOBODY))

    def add(self, partition: str, by: str) -> None:
        topic, _, number = partition.rpartition("-")
        error = self._world.add(producer(by), partition=TopicPartition(topic, int(number)))
        self._answered(Decision(error))

    def commit(self, by: str, version: str = "2") -> None:
        self._answered(self._world.end(producer(by), version=int(version)))

    def abort(self, by: str, version: str = "2") -> None:
        self._answered(self._world.end(producer(by), commit=False, version=int(version)))

    def _answered(self, decision: Decision) -> None:
        is_named = decision.producer != NOBODY and not decision.error
        name = f", {decision.producer.producer_id}/{decision.producer.epoch}" if is_named else ""
        self._answers.append(f"answer: {decision.error.name}{name}")

    def markers(self) -> None:
        self._world.write_markers()

    def fail_over(self) -> None:
        self._world.sending.clear()
        self._world.fail_over()

    def last_epoch(self) -> None:
        """Set the epoch of the producer id to its last but one."""
        known = self._world.coordinator.runtime.at(0).transactions
        known["pay"] = known["pay"]._replace(epoch=32766)

    def time_is_up(self) -> None:
        self._world.timers.pass_time(TIMEOUT_MS / 1000 + 10)

    def nobody_comes(self) -> None:
        self._world.timers.pass_time(EXPIRATION_MS / 1000 + 3_700)

    def describe(self) -> str:
        lines, self._answers = self._answers, []
        try:
            found = self._world.coordinator.describe("pay")
        except ApiError as error:
            return "\n".join([*lines, error.code.name])
        partitions = ", ".join(sorted(map(str, found.partitions)))
        lines.append(f"{found.state.name} {found.producer_id}/{found.epoch}{': ' * bool(partitions)}{partitions}")
        for each in self._world.sending:
            kind, where = "commit" if each.marker.is_commit else "abort", ", ".join(sorted(map(str, each.partitions)))
            by = f"{each.marker.producer_id}/{each.marker.producer_epoch}"
            lines.append(f"marker {kind} {by} from coordinator {each.marker.coordinator_epoch} to {where or 'nobody'}")
        return "\n".join(lines)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_coordinator_follows_the_scenario(path: Path) -> None:
    check_scenario(path, Coordinator())
