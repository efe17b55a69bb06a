"""Scenarios of transactions in flights-0 on broker 1, as documents (`harness.scenarios`). Producers are `ID/EPOCH`."""

from pathlib import Path

import pytest
from one_replica import FLIGHTS, NOW_MS
from scenario_replica import Replica

from barnabas_broker.storage.logs.log import aborted_among
from barnabas_broker.storage.logs.offset_lookup import last_stable_offset
from barnabas_broker.wire.key_values import Marker, encode_marker
from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT, assign_offset, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ApiError
from harness.scenarios import check_scenario
from harness.verified import verified

SCENARIOS = sorted((Path(__file__).parent / "transaction_scenarios").glob("*.txt"))


def numbers(by: str) -> tuple[int, int]:
    producer_id, _, epoch = by.partition("/")
    return int(producer_id), int(epoch)


def batch_of(by: str, sequence: str) -> bytearray:
    producer_id, epoch = numbers(by)
    return encode_batch(
        [Record(0, NOW_MS, None, b"value")],
        attributes=TRANSACTIONAL_BIT,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=int(sequence),
    )


class TransactionalReplica(Replica):
    """The commands for batches that a leader appends or a follower fetches. Each batch has one record."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._answers: list[str] = []

    def produce(self, by: str, sequence: str) -> None:
        batch = batch_of(by, sequence)
        partition, header = self.broker.partition, parse_header(batch, 0)
        partition.append_as_leader(memoryview(batch), header, NOW_MS, verified(partition.log, header))

    def marker(self, kind: str, by: str, coordinator: str = "0") -> None:
        try:
            marker = Marker(*numbers(by), int(coordinator), is_commit=kind == "commit")
            self.broker.partition.append_marker(marker, 2, NOW_MS)
        except ApiError as error:
            self._answers.append(f"refused: {error.code.name}")

    def fetch_batch(self, by: str, sequence: str, epoch: str, committed: str) -> None:
        self._fetch(batch_of(by, sequence), epoch, committed)

    def fetch_marker(self, kind: str, by: str, epoch: str, committed: str) -> None:
        self._fetch(encode_marker(Marker(*numbers(by), 0, is_commit=kind == "commit"), NOW_MS), epoch, committed)

    def _fetch(self, data: bytearray, epoch: str, committed: str) -> None:
        assign_offset(data, 0, self.broker.partition.log.log_end_offset, int(epoch))
        partition = self.broker.partition
        partition.follower.append(memoryview(data), partition.leader_epoch, int(committed), 0, NOW_MS)

    def describe(self) -> str:
        answers, self._answers = self._answers, []
        partition = self.broker.replicas.lookup.hosted(FLIGHTS)
        assert partition is not None
        log = partition.log
        ends = f"ends at {log.log_end_offset}, committed {partition.log.high_watermark}"
        records = log.read(0, 1 << 20, log.log_end_offset, at_least_one_batch=True)
        aborted = [] if records is None else aborted_among(log, 0, records)
        shown = [f"{producer_id} from {first}" for producer_id, first in aborted]
        opened = [each for each, known in log.producers.producers.items() if known.transaction_first_offset >= 0]
        return "\n".join(
            [
                *answers,
                f"{ends}, stable until {last_stable_offset(partition.log)}",
                f"open: {', '.join(map(str, sorted(opened))) or 'none'}; aborted: {', '.join(shown) or 'none'}",
            ]
        )


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_transactions_of_a_replica_are_what_the_document_says(path: Path, tmp_path: Path) -> None:
    check_scenario(path, TransactionalReplica(tmp_path))
