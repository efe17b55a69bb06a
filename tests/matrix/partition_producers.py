"""The producers of a partition: each batch and each marker in each state, by epoch, sequence and coordinator epoch.

Each cell has a partition and a producer id of its own. The producer writes batches of two records; in states without
transactions its epoch is 5. The next state is what DescribeProducers shows, then `LAST STABLE OFFSET of END OFFSET`,
and the answer to the same request once more. Coordinator epochs are relative to that of node 1; -1 is an older one or
none.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ErrorCode
from harness.deadline import wait_for
from matrix.cells import Cell, Difference, Subject
from matrix.nodes import Nodes

EPOCH: Final = 5
SECOND_2020_MS: Final = 1_577_836_800_000

LAST_SEQUENCE: Final = 2**31 - 1
RECORDS: Final = 2
ABSENT: Final = -1


class Shown(NamedTuple):
    """A producer as DescribeProducers shows it."""

    epoch: int
    last_sequence: int
    coordinator_epoch: int
    first_offset: int

    def __str__(self) -> str:
        opened = f", open from {self.first_offset}" if self.first_offset >= 0 else ""
        return f"epoch {self.epoch}, sequence {self.last_sequence}, coordinator {self.coordinator_epoch}{opened}"


class Log:
    """A partition with one producer."""

    def __init__(self, nodes: Nodes, topic: str, partition: int) -> None:
        self.nodes, self.topic, self.partition = nodes, topic, partition
        self.transactional_id = nodes.fresh("producer")
        self.producer_id, self.epoch, self.next_sequence = ABSENT, EPOCH, 0
        self.oldest_sequence = 0
        self.coordinator_epoch = nodes.coordinator_epoch()

    def init(self, transactional_id: str | None = None) -> None:
        """Get a producer id, with an epoch if there is a transactional id."""
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        answer = wait_for(partial(self._inited, fields))
        self.producer_id = answer.producer_id
        if transactional_id is not None:
            self.epoch, self.next_sequence = answer.producer_epoch, 0

    def _inited(self, fields: Mapping[str, Any]) -> Any:
        answer = self.nodes.ask("InitProducerId", 4, **fields, producer_id=-1, producer_epoch=-1)
        assert answer.error_code in (0, *_LATER), answer
        return answer if answer.error_code == 0 else None

    def produce(
        self,
        epoch: int,
        sequence: int,
        version: int,
        *,
        transactional: bool = False,
        records: int = RECORDS,
        timestamp_ms: int | None = None,
    ) -> tuple[str, int]:
        """Send a batch; return the name of the error and the base offset."""
        ids = {"producer_id": self.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        now_ms = int(time.time() * 1000)
        of_batch = [Record(number, timestamp_ms or now_ms, None, b"v") for number in range(records)]
        batch = bytes(encode_batch(of_batch, attributes=TRANSACTIONAL_BIT if transactional else 0, **ids))
        topic = {"name": self.topic, "partition_data": [{"index": self.partition, "records": batch}]}
        fields = {"transactional_id": self.transactional_id if transactional else None, "acks": -1}
        answer = self.nodes.ask("Produce", version, **fields, timeout_ms=30_000, topic_data=[topic])
        found = answer.responses[0].partition_responses[0]
        return ErrorCode(found.error_code).name, found.base_offset

    def append(self, *, version: int = 12, **more: Any) -> None:
        """Write the next batch."""
        assert self.produce(self.epoch, self.next_sequence, version, **more)[0] == "NONE"
        self.next_sequence = (self.next_sequence + RECORDS) & LAST_SEQUENCE

    def mark(self, epoch: int, *, commit: bool, coordinator_epoch: int, version: int, of_version: int = 0) -> str:
        """Send a marker as a coordinator does; return the name of the error."""
        topic = {"name": self.topic, "partition_indexes": [self.partition]}
        marker: dict[str, Any] = {
            "producer_id": self.producer_id,
            "producer_epoch": epoch,
            "transaction_result": commit,
        }
        marker |= {"coordinator_epoch": self.coordinator_epoch + coordinator_epoch, "topics": [topic]}
        if version >= 2:
            marker["transaction_version"] = of_version
        answer = self.nodes.ask("WriteTxnMarkers", version, markers=[marker])
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code).name

    def add(self) -> None:
        """Add the partition to the transaction."""
        topic = {"name": self.topic, "partitions": [self.partition]}
        own = {"transactional_id": self.transactional_id, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        fields = {f"v3_and_below_{name}": value for name, value in own.items()}
        answer = self.nodes.ask("AddPartitionsToTxn", 3, **fields, v3_and_below_topics=[topic])
        assert answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, answer

    def end(self, *, commit: bool, version: int) -> None:
        """End the transaction, and wait for its marker."""
        own = {"transactional_id": self.transactional_id, "producer_id": self.producer_id, "producer_epoch": self.epoch}
        answer = self.nodes.ask("EndTxn", version, **own, committed=commit)
        assert answer.error_code == 0, answer
        if version >= 5:
            self.epoch, self.next_sequence = answer.producer_epoch, 0
        wait_for(self._is_complete, pause_s=0.002)

    def _is_complete(self) -> bool:
        answer = self.nodes.ask("DescribeTransactions", 0, transactional_ids=[self.transactional_id])
        return bool(answer.transaction_states[0].transaction_state.startswith("Complete"))

    def delete_records(self) -> None:
        """Delete all records."""
        topic = {"name": self.topic, "partitions": [{"partition_index": self.partition, "offset": -1}]}
        answer = self.nodes.ask("DeleteRecords", 2, topics=[topic], timeout_ms=30_000)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def shown(self) -> Shown | None:
        """Return the producer, None if the partition does not know it."""
        topic = {"name": self.topic, "partition_indexes": [self.partition]}
        found = self.nodes.ask("DescribeProducers", 0, topics=[topic]).topics[0].partitions[0]
        assert found.error_code == 0, found
        of_producer = [each for each in found.active_producers if each.producer_id == self.producer_id]
        for each in of_producer:
            coordinator = max(each.coordinator_epoch - self.coordinator_epoch, ABSENT)
            return Shown(each.producer_epoch, each.last_sequence, coordinator, each.current_txn_start_offset)
        return None

    def offsets(self) -> str:
        """Return the last stable offset and the end offset."""
        return f"{self._offset(1)} of {self._offset(0)}"

    def _offset(self, isolation: int) -> int:
        partition = {"partition_index": self.partition, "timestamp": -1}
        fields = {"replica_id": -1, "isolation_level": isolation}
        answer = self.nodes.ask("ListOffsets", 7, **fields, topics=[{"name": self.topic, "partitions": [partition]}])
        found = answer.topics[0].partitions[0]
        assert found.error_code == 0, found
        return int(found.offset)


_LATER: Final = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
Step = Callable[[Log], object]


def _bump(log: Log) -> None:
    log.epoch, log.next_sequence, log.oldest_sequence = log.epoch + 1, 0, 0


def _six(log: Log) -> None:
    for _ in range(6):
        log.append()
    log.oldest_sequence = RECORDS


def _near_the_last(log: Log) -> None:
    log.next_sequence = log.oldest_sequence = LAST_SEQUENCE - 1
    log.append()


def _over_the_last(log: Log) -> None:
    log.next_sequence = log.oldest_sequence = LAST_SEQUENCE
    assert log.produce(log.epoch, LAST_SEQUENCE, 12)[0] == "NONE"
    log.next_sequence = 1


def _expire(log: Log) -> None:
    log.append(timestamp_ms=SECOND_2020_MS)
    wait_for(lambda: log.shown() is None, pause_s=0.005)


def _init(log: Log) -> None:
    log.init(log.transactional_id)


def _marker(log: Log) -> None:
    assert log.mark(log.epoch, commit=False, coordinator_epoch=0, version=1) == "NONE"


def _refused(log: Log) -> None:
    assert log.produce(log.epoch, 3, 12, transactional=True)[0] != "NONE"


def _open(version: int) -> tuple[Step, ...]:
    adds: tuple[Step, ...] = () if version >= 12 else (Log.add,)
    return (_init, _init, *adds, partial(Log.append, version=version, transactional=True))


ALONE: Final[Mapping[str, tuple[Step, ...]]] = {
    "Unknown": (Log.init,),
    "One batch": (Log.init, Log.append),
    "Six batches": (Log.init, _six),
    "The last sequence": (Log.init, _near_the_last),
    "Wrapped": (Log.init, _over_the_last),
    "Next epoch": (Log.init, Log.append, _bump, Log.append),
    "Marker only": (Log.init, _marker),
    "Batch and marker": (Log.init, Log.append, _marker),
    "Expired": (Log.init, _expire),
    "Deleted": (Log.init, Log.append, Log.delete_records),
}
OF_VERSION_2: Final[Mapping[str, tuple[Step, ...]]] = {
    "No transaction": (_init, _init),
    "Added": (_init, _init, Log.add),
    "Verified, not appended": (_init, _init, _refused),
    "Open": _open(12),
    "Committed": (*_open(12), partial(Log.end, commit=True, version=5)),
    "Aborted": (*_open(12), partial(Log.end, commit=False, version=5)),
    "Committed by an old client": (*_open(11), partial(Log.end, commit=True, version=4)),
    "Fenced": (*_open(12), _init),
}
OF_VERSION_0: Final[Mapping[str, tuple[Step, ...]]] = {
    "No transaction": (_init, _init),
    "Added": (_init, _init, Log.add),
    "Open": _open(11),
    "Committed": (*_open(11), partial(Log.end, commit=True, version=4)),
    "Aborted": (*_open(11), partial(Log.end, commit=False, version=4)),
    "Fenced": (*_open(11), _init),
}

Batch = tuple[int, int, int]
"""The epoch, the first sequence and the number of records of a batch."""


def _batches(log: Log) -> dict[str, Batch]:
    """Return each batch once, by name."""
    after, last = log.next_sequence, (log.next_sequence - RECORDS) & LAST_SEQUENCE
    named = {
        "next": (log.epoch, after, RECORDS),
        "last again": (log.epoch, last, RECORDS),
        "last again and one more": (log.epoch, last, RECORDS + 1),
        "oldest again": (log.epoch, log.oldest_sequence, RECORDS),
        "before the oldest": (log.epoch, (log.oldest_sequence - RECORDS) & LAST_SEQUENCE, RECORDS),
        "gap": (log.epoch, after + 1, RECORDS),
        "sequence 0": (log.epoch, 0, RECORDS),
        "no sequence": (log.epoch, -1, RECORDS),
        "older epoch, next": (log.epoch - 1, after, RECORDS),
        "older epoch, sequence 0": (log.epoch - 1, 0, RECORDS),
        "older epoch, last again": (log.epoch - 1, last, RECORDS),
        "newer epoch, next": (log.epoch + 1, after, RECORDS),
        "newer epoch, sequence 0": (log.epoch + 1, 0, RECORDS),
        "newer epoch, gap": (log.epoch + 1, 3, RECORDS),
    }
    once = {batch: name for name, batch in reversed(named.items())}
    return {name: batch for name, batch in named.items() if once[batch] == name}


class Marker(NamedTuple):
    """A marker, with an epoch relative to the producer's."""

    epoch_step: int
    commit: bool
    coordinator_epoch: int

    def __str__(self) -> str:
        epoch = {-1: "older epoch", 0: "same epoch", 1: "newer epoch"}[self.epoch_step]
        return f"{'commit' if self.commit else 'abort'}, {epoch}, coordinator {self.coordinator_epoch}"


MARKERS: Final = (
    *(Marker(step, commit, 0) for step in (-1, 0, 1) for commit in (True, False)),
    Marker(0, commit=True, coordinator_epoch=1),
    Marker(0, commit=True, coordinator_epoch=-1),
)
Send = Callable[[Log], str]


def _produced(name: str, version: int, transactional: bool, log: Log) -> Send:
    epoch, sequence, records = _batches(log)[name]

    def send(log: Log) -> str:
        error, offset = log.produce(epoch, sequence, version, transactional=transactional, records=records)
        return error if error != "NONE" else f"at {offset}"

    return send


def _marked(marker: Marker, version: int, of_version: int, log: Log) -> Send:
    epoch = log.epoch + marker.epoch_step
    return lambda log: log.mark(
        epoch,
        commit=marker.commit,
        coordinator_epoch=marker.coordinator_epoch,
        version=version,
        of_version=of_version,
    )


Request = tuple[str, str, Callable[[Log], Send]]
"""The title, the variant, and a function that returns the request of a log in its state."""


def _produces(title: str, version: int, example: Log, *, transactional: bool) -> Iterator[Request]:
    for name in _batches(example):
        yield f"{title} v{version}", name, partial(_produced, name, version, transactional)


def _marks(version: int, of_version: int) -> Iterator[Request]:
    title = f"WriteTxnMarkers v{version}" + (f" of transaction.version {of_version}" if version >= 2 else "")
    for marker in MARKERS:
        yield title, str(marker), partial(_marked, marker, version, of_version)


def _alone(example: Log) -> Iterator[Request]:
    yield from _produces("Produce", 12, example, transactional=False)
    yield from _marks(1, 0)
    yield from _marks(2, 2)


def _in_version_2(example: Log) -> Iterator[Request]:
    yield from _produces("transactional Produce", 12, example, transactional=True)
    yield from _produces("transactional Produce", 11, example, transactional=True)
    alone = _produces("Produce", 12, example, transactional=False)
    yield from (each for each in alone if each[1] in ("next", "sequence 0"))
    yield from _marks(2, 2)


def _in_version_0(example: Log) -> Iterator[Request]:
    yield from _produces("transactional Produce", 11, example, transactional=True)
    yield from _marks(2, 0)


def _ask(
    version: int,
    states: Mapping[str, tuple[Step, ...]],
    requests: Callable[[Log], Iterator[Request]],
    nodes: Nodes,
) -> Iterator[tuple[Cell, str]]:
    nodes.set_transaction_version(version)
    for state, steps in states.items():
        every, topic = requests(_example(nodes, steps)), nodes.fresh("log")
        names = [(title, variant, of) for title, variant, of in every if nodes.asks(Cell(state, title, variant))]
        _create(nodes, topic, len(names))
        for partition, (title, variant, of) in enumerate(names):
            yield Cell(state, title, variant), _outcome(_made(nodes, topic, partition, steps), of)


def _create(nodes: Nodes, topic: str, count: int) -> None:
    nodes.create_topic(topic, count)
    partitions = [{"partition_index": number, "timestamp": -1} for number in range(count)]
    fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": partitions}]}
    wait_for(lambda: not any(each.error_code for each in nodes.ask("ListOffsets", 7, **fields).topics[0].partitions))


def _example(nodes: Nodes, steps: tuple[Step, ...]) -> Log:
    topic = nodes.fresh("example")
    _create(nodes, topic, 1)
    return _made(nodes, topic, 0, steps)


def _made(nodes: Nodes, topic: str, partition: int, steps: tuple[Step, ...]) -> Log:
    log = Log(nodes, topic, partition)
    for step in steps:
        step(log)
    return log


def _outcome(log: Log, of: Callable[[Log], Send]) -> str:
    send = of(log)
    answer = send(log)
    return f"{answer} -> {log.shown() or 'unknown'}, {log.offsets()}; again: {send(log)}"


DIFFERENCES: Final = (
    Difference(
        "* | transactional Produce v11 | no sequence",
        "INVALID_RECORD *",
        "a batch that is wrong in itself is refused before the coordinator is asked",
    ),
)
OF_VERSION_2_ONLY: Final = (
    Difference(
        "Verified, not appended | transactional Produce v11 | *",
        "at 0 -> *",
        "the version of a request says whether its first sequence must be 0, not the version of an earlier one",
    ),
)
SUBJECTS: Final = (
    Subject("producers", partial(_ask, 2, ALONE, _alone)),
    Subject("producers-0", partial(_ask, 0, OF_VERSION_0, _in_version_0), DIFFERENCES),
    Subject("producers-2", partial(_ask, 2, OF_VERSION_2, _in_version_2), (*DIFFERENCES, *OF_VERSION_2_ONLY)),
)
