"""A transactional id and its coordinator: each request of a producer in each state, by producer id, epoch and result.

A transaction in state Ongoing has the first partition of NEAR, the partition of HELD, and the one of its group's
offsets. `p` is the stored producer id, and epochs are relative to the stored one.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from barnabas_broker.wire.record_batch import TRANSACTIONAL_BIT
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ErrorCode
from harness.deadline import wait_for
from matrix.cells import Cell, Difference, Subject
from matrix.nodes import HELD, NEAR, OFFSETS_TOPIC, Nodes

TIMEOUT_MS: Final = 60_000
SECOND_2020_MS: Final = 1_577_836_800_000
FAR_AWAY: Final = 1_000_000_000
"""A distance to the producer ids that exist."""
NOBODY: Final = (-1, -1)
EPOCH_MAX: Final = 32_767
By = tuple[int, int]
"""A producer id and an epoch."""


class Stored(NamedTuple):
    """The transaction as the coordinator describes it."""

    state: str
    by: By
    topics: frozenset[tuple[str, int]]


class Producer:
    """A client with a transactional id."""

    def __init__(self, nodes: Nodes, version: int) -> None:
        self.nodes = nodes
        self.transactional_id = nodes.fresh("id")
        self.group = nodes.fresh("group")
        self.ends_by = 5 if version >= 2 else 4
        self.by: By = NOBODY
        self.first: By = NOBODY
        """The producer id and epoch with which the producer began."""

    def _fields(self, by: By) -> dict[str, Any]:
        return {"transactional_id": self.transactional_id, "producer_id": by[0], "producer_epoch": by[1]}

    def stored(self) -> Stored | None:
        """Return the stored transaction, None if the coordinator knows none."""
        answer = self.nodes.ask("DescribeTransactions", 0, transactional_ids=[self.transactional_id])
        (found,) = answer.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        topics = frozenset((each.topic, number) for each in found.topics for number in each.partitions)
        return Stored(found.transaction_state, (found.producer_id, found.producer_epoch), topics)

    def settled(self) -> Stored | None:
        """Return the stored transaction once no marker is under way except those that never arrive."""
        return wait_for(self.stored, _is_settled, pause_s=0.002)

    def init(self, expected: By = NOBODY, *, timeout_ms: int = TIMEOUT_MS) -> Any:
        """Send an InitProducerId."""
        fields = {**self._fields(expected), "transaction_timeout_ms": timeout_ms}
        return self.nodes.ask("InitProducerId", 5, **fields)

    def add(self, by: By, *topics: tuple[str, int]) -> Any:
        """Send an AddPartitionsToTxn as a client."""
        fields = {f"v3_and_below_{name}": value for name, value in self._fields(by).items()}
        return self.nodes.ask("AddPartitionsToTxn", 3, **fields, v3_and_below_topics=_topics(topics))

    def add_as_broker(self, by: By, *topics: tuple[str, int], verify: bool) -> Any:
        """Send an AddPartitionsToTxn as a broker."""
        fields = {**self._fields(by), "verify_only": verify, "topics": _topics(topics)}
        return self.nodes.ask("AddPartitionsToTxn", 5, transactions=[fields])

    def add_offsets(self, by: By) -> Any:
        """Send an AddOffsetsToTxn."""
        return self.nodes.ask("AddOffsetsToTxn", 4, **self._fields(by), group_id=self.group)

    def end(self, by: By, *, commit: bool, version: int) -> Any:
        """Send an EndTxn."""
        return self.nodes.ask("EndTxn", version, **self._fields(by), committed=commit)

    def produce(self, by: By, partition: int, *, version: int) -> Any:
        """Send a Produce with the first batch of the producer to a partition of NEAR."""
        ids = {"producer_id": by[0], "producer_epoch": by[1], "base_sequence": 0}
        record = Record(0, SECOND_2020_MS, None, b"value")
        batch = bytes(encode_batch([record], attributes=TRANSACTIONAL_BIT, **ids))
        topic = {"name": NEAR, "partition_data": [{"index": partition, "records": batch}]}
        fields = {"transactional_id": self.transactional_id, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}
        return self.nodes.ask("Produce", version, **fields)

    def commit_offsets(self, by: By, *, version: int) -> Any:
        """Send a TxnOffsetCommit."""
        topic = {"name": NEAR, "partitions": [{"partition_index": 0, "committed_offset": 5}]}
        fields = {**self._fields(by), "group_id": self.group, "generation_id_or_member_epoch": -1, "topics": [topic]}
        return self.nodes.ask("TxnOffsetCommit", version, **fields)


def _is_settled(found: Stored | None) -> bool:
    return found is None or not found.state.startswith("Prepare") or (HELD, 0) in found.topics


def _topics(partitions: tuple[tuple[str, int], ...]) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [number]} for name, number in partitions]


Step = Callable[[Producer], object]
"""A step on the way into a state."""


def init(producer: Producer) -> None:
    """Begin with a new epoch."""
    answer = producer.init()
    assert answer.error_code == 0, answer
    producer.by = answer.producer_id, answer.producer_epoch


def begin_old(producer: Producer) -> None:
    """Begin with the last epoch of a producer id."""
    producer.transactional_id = producer.nodes.old()
    init(producer)
    producer.first = producer.by


def init_again(producer: Producer) -> None:
    """Begin with the next epoch, as a producer does after an error (KIP-360)."""
    answer = producer.init(producer.by)
    assert answer.error_code == 0, answer
    producer.by = answer.producer_id, answer.producer_epoch


def init_for_a_moment(producer: Producer) -> None:
    """Begin with a timeout of a millisecond."""
    answer = producer.init(timeout_ms=1)
    producer.by = answer.producer_id, answer.producer_epoch


def _adds(*topics: tuple[str, int]) -> Step:
    def step(producer: Producer) -> None:
        answer = producer.add(producer.by, *topics)
        assert set(_codes(answer)) == {0}, answer

    return step


def add_offsets(producer: Producer) -> None:
    """Add the partition of the group's offsets."""
    assert producer.add_offsets(producer.by).error_code == 0


def take_over(producer: Producer) -> None:
    """Fence the producer, as another one that takes its transactional id does."""
    assert producer.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS


def _ends(*, commit: bool) -> Step:
    def step(producer: Producer) -> None:
        answer = producer.end(producer.by, commit=commit, version=producer.ends_by)
        assert answer.error_code == 0, answer
        if producer.ends_by >= 5:
            producer.by = answer.producer_id, answer.producer_epoch

    return step


def wait_until_complete(producer: Producer) -> None:
    """Wait for the end of the transaction."""
    wait_for(lambda: (producer.stored() or NO_STATE).state.startswith("Complete"), pause_s=0.002)


NO_STATE: Final = Stored("", NOBODY, frozenset())
BEGIN: Final = (init, init)
NEAR_0, NEAR_1, HELD_0 = (NEAR, 0), (NEAR, 1), (HELD, 0)
add_near, add_held, add_all = _adds(NEAR_0), _adds(HELD_0), _adds(NEAR_0, HELD_0)
commit, abort = _ends(commit=True), _ends(commit=False)

STATES: Final[Mapping[str, tuple[Step, ...]]] = {
    "Unknown": (),
    "Empty": BEGIN,
    "Empty after an error": (*BEGIN, init_again),
    "Ongoing": (*BEGIN, add_all, add_offsets),
    "CompleteCommit": (*BEGIN, add_near, commit, wait_until_complete),
    "CompleteAbort": (*BEGIN, add_near, abort, wait_until_complete),
    "CompleteAbort of another producer": (*BEGIN, add_near, take_over, wait_until_complete),
    "CompleteAbort by timeout": (init, init_for_a_moment, add_near, wait_until_complete),
    "PrepareCommit": (*BEGIN, add_held, commit),
    "PrepareAbort": (*BEGIN, add_held, abort),
    "PrepareAbort of another producer": (*BEGIN, add_held, take_over),
}
LAST_EPOCH: Final[Mapping[str, tuple[Step, ...]]] = {
    "Empty at the last epoch": (begin_old,),
    "Ongoing at the last epoch": (begin_old, add_all, add_offsets),
    "CompleteCommit after the last epoch": (begin_old, add_near, commit, wait_until_complete),
    "PrepareCommit at the last epoch": (begin_old, add_held, commit),
}
"""The states in which the epochs of a producer id are used up: the next transaction has the next producer id."""

Request = Callable[[Producer, By], Any]
OF_ALL: Final[Mapping[str, Request]] = {
    "InitProducerId v5": lambda producer, by: producer.init(by),
    "AddPartitionsToTxn v3": lambda producer, by: producer.add(by, NEAR_0, NEAR_1),
    "AddPartitionsToTxn v5 verifying": lambda producer, by: producer.add_as_broker(by, NEAR_0, NEAR_1, verify=True),
    "AddOffsetsToTxn v4": lambda producer, by: producer.add_offsets(by),
    "EndTxn v4 commit": lambda producer, by: producer.end(by, commit=True, version=4),
    "EndTxn v4 abort": lambda producer, by: producer.end(by, commit=False, version=4),
    "Produce v11": lambda producer, by: producer.produce(by, 0, version=11),
    "TxnOffsetCommit v4": lambda producer, by: producer.commit_offsets(by, version=4),
}
OF_VERSION_2: Final[Mapping[str, Request]] = {
    **OF_ALL,
    "AddPartitionsToTxn v5 adding": lambda producer, by: producer.add_as_broker(by, NEAR_0, NEAR_1, verify=False),
    "EndTxn v5 commit": lambda producer, by: producer.end(by, commit=True, version=5),
    "EndTxn v5 abort": lambda producer, by: producer.end(by, commit=False, version=5),
    "Produce v12": lambda producer, by: producer.produce(by, 1, version=12),
    "TxnOffsetCommit v5": lambda producer, by: producer.commit_offsets(by, version=5),
}
OF_TIMEOUTS: Final = ("InitProducerId", "EndTxn")
"""The requests that begin no transaction, which would time out at once."""
OF_LAST_EPOCH: Final = ("InitProducerId", "AddPartitionsToTxn", "EndTxn v5", "Produce v12", "TxnOffsetCommit v5")
"""The requests of producers whose epochs are used up."""


def _variants(request: str, producer: Producer, at: Stored | None) -> dict[str, By]:
    """Return the producers that ask, by name."""
    found = {"nobody": NOBODY} if request.startswith("Init") else {}
    if at is None:
        return found | {"another id": (FAR_AWAY, 0)}
    number, epoch = at.by
    found |= {f"p, epoch{step:+d}": (number, epoch + step) for step in (-1, 0, 1) if 0 <= epoch + step <= EPOCH_MAX}
    found |= {"another id": (number + FAR_AWAY, epoch)}
    if producer.first[0] not in (NOBODY[0], number):
        found |= {"the first id": producer.first}
    if producer.by[0] not in (number, producer.first[0]):
        found |= {"the next id": producer.by}
    return found


def _ask(version: int, requests: Mapping[str, Request], nodes: Nodes) -> Iterator[tuple[Cell, str]]:
    nodes.set_transaction_version(version)
    for state, steps in {**STATES, **LAST_EPOCH}.items():
        example = _begun(nodes, version, steps)
        at = _finished(example, steps)
        asked = [each for each in requests if each.startswith(_only(steps))]
        every = [(request, name) for request in asked for name in _variants(request, example, at)]
        names = [each for each in every if nodes.asks(Cell(state, *each))]
        producers = [_begun(nodes, version, steps) for _ in names]
        for (request, name), producer in zip(names, producers, strict=True):
            at = _finished(producer, steps)
            answer = requests[request](producer, _variants(request, producer, at)[name])
            yield Cell(state, request, name), f"{_text(answer, at)} -> {_after(producer.settled(), at)}"


def _only(steps: tuple[Step, ...]) -> tuple[str, ...]:
    """Return how the names of the requests begin that are sent in the state behind these steps."""
    if steps[:1] == (begin_old,):
        return OF_LAST_EPOCH
    return OF_TIMEOUTS if init_for_a_moment in steps else ("",)


def _begun(nodes: Nodes, version: int, steps: tuple[Step, ...]) -> Producer:
    """Return a producer that has gone all steps, except that it has not waited at the end."""
    producer = Producer(nodes, version)
    for step in steps[: -1 if steps[-1:] == (wait_until_complete,) else None]:
        step(producer)
    return producer


def _finished(producer: Producer, steps: tuple[Step, ...]) -> Stored | None:
    if steps[-1:] == (wait_until_complete,):
        wait_until_complete(producer)
    return producer.settled()


def _codes(answer: Any) -> list[int]:
    """Return the error codes in a response, in its order."""
    if isinstance(answer, list):
        return [code for each in answer for code in _codes(each)]
    if not hasattr(answer, "__struct_fields__"):
        return []
    own = [getattr(answer, name) for name in ("error_code", "partition_error_code") if hasattr(answer, name)]
    inner = [code for name in answer.__struct_fields__ for code in _codes(getattr(answer, name))]
    # A response has a code of its own beside those of its partitions; it counts if there is nothing else.
    return inner or own


def _text(answer: Any, at: Stored | None) -> str:
    names = [ErrorCode(code).name for code in _codes(answer)]
    if hasattr(answer, "producer_id") and answer.producer_id >= 0:
        return f"{names[0]}, {_by((answer.producer_id, answer.producer_epoch), at)}"
    return " ".join(names)


def _by(by: By, at: Stored | None) -> str:
    is_same = at is not None and by[0] == at.by[0]
    return f"{'p' if is_same else 'a new id'}, epoch {by[1]}"


def _after(found: Stored | None, at: Stored | None) -> str:
    if found is None:
        return "Unknown"
    if found.state != "Ongoing":
        return f"{found.state} of {_by(found.by, at)}"
    names = sorted("offsets" if name == OFFSETS_TOPIC else f"{name}-{number}" for name, number in found.topics)
    return f"Ongoing of {_by(found.by, at)} with {' '.join(names)}"


DIFFERENCES: Final = (
    Difference(
        "* the last epoch | InitProducerId v5 | p, epoch?1",
        "PRODUCER_FENCED -> *",
        "Apache Kafka fails with an IllegalStateException, and answers UNKNOWN_SERVER_ERROR",
    ),
)
SUBJECTS: Final = (
    Subject("transactions-0", partial(_ask, 0, OF_ALL), DIFFERENCES),
    Subject("transactions-1", partial(_ask, 1, OF_ALL), DIFFERENCES),
    Subject("transactions-2", partial(_ask, 2, OF_VERSION_2), DIFFERENCES),
)
