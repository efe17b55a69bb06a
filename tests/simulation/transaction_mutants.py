"""Known mistakes with transactions, each planted by a patch."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.app import coordinators as app_coordinators
from barnabas_broker.coordinators.groups import coordinator as group_coordinator
from barnabas_broker.coordinators.runtime.writer import LoadedRecords
from barnabas_broker.coordinators.transactions import coordinator, decisions, gate
from barnabas_broker.coordinators.transactions.coordinator import TransactionShard
from barnabas_broker.coordinators.transactions.decisions import (
    IDLE,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    Decision,
    Transaction,
    abort,
    end,
    init_producer_id,
)
from barnabas_broker.coordinators.transactions.marker_sender import Deleted, MarkerSender, state_of
from barnabas_broker.handlers import fetch, partition_offsets, pending_produce, produce
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_broker.replication.partition import Partition
from barnabas_broker.storage.logs import log_history, truncation
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.storage.producer_state import ProducerStates
from barnabas_broker.storage.segments.indexes import TransactionIndex
from barnabas_broker.wire.key_values import NewestSlice, ProducerEpoch, TransactionalKeyValues
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition
from simulation.set_ups import delays_watches_while_topics_are_made_again, puts_an_older_backup_back

PAUSE_S: Final = 1.0
UNMADE: Final = PartitionState((), NO_LEADER, 0, ())
"""The state of a partition that an image lacks."""


@contextmanager
def sends_markers_before_the_decision_is_committed() -> Iterator[None]:
    """Markers are sent before the decision is committed; its record is delayed, so that the mistake shows."""
    write = TransactionShard._write

    def mistaken(
        self: TransactionShard, name: str, written: Transaction, answer: Callable[[ErrorCode], object]
    ) -> None:
        if written.state not in PREPARED:
            write(self, name, written, answer)
            return
        self._send_markers(name, written)
        self._environment.timers.call_later(PAUSE_S, lambda: write(self, name, written, answer))

    with patch.object(TransactionShard, "_write", mistaken):
        yield


@contextmanager
def fences_without_a_new_epoch() -> Iterator[None]:
    """A producer that takes over an id keeps the epoch of the producer before."""

    def mistaken(found: Transaction | None, *arguments: Any) -> Decision:
        decision = init_producer_id(found, *arguments)
        if found is None or found.state not in IDLE or decision.write is None:
            return decision
        written = decision.write._replace(epoch=found.epoch)
        return decision._replace(write=written, producer=written.producer)

    def end_in_the_same_epoch(ongoing: Transaction, *arguments: Any) -> Transaction:
        return abort(ongoing, *arguments)._replace(epoch=ongoing.epoch, client_version=0)

    with (
        patch.object(decisions, "init_producer_id", mistaken),
        patch.object(decisions, "abort", end_in_the_same_epoch),
        patch.object(coordinator, "abort", end_in_the_same_epoch),
    ):
        yield


@contextmanager
def reads_past_open_transactions() -> Iterator[None]:
    """The last stable offset equals the high watermark."""

    def mistaken(log: Log) -> int:
        return log.high_watermark

    with (
        patch.object(fetch, "last_stable_offset", mistaken),
        patch.object(partition_offsets, "last_stable_offset", mistaken),
    ):
        yield


@contextmanager
def forgets_aborted_transactions_in_a_truncation() -> Iterator[None]:
    """A truncation removes the whole index of its segment."""
    truncate_to = TransactionIndex.truncate_to

    def mistaken(self: TransactionIndex, offset: int) -> None:  # This is the patch.
        truncate_to(self, 0)

    with patch.object(TransactionIndex, "truncate_to", mistaken):
        yield


@contextmanager
def indexes_no_aborted_transactions() -> Iterator[None]:
    """Consumers do not learn which transactions were aborted."""
    with patch.object(TransactionIndex, "add", lambda *_: None):
        yield


@contextmanager
def counts_pending_offsets_when_it_loads() -> Iterator[None]:
    """A coordinator that loads its log takes all offsets for committed."""
    add = LoadedRecords.add

    def mistaken(self: LoadedRecords, some: NewestSlice) -> int:
        if isinstance(some, TransactionalKeyValues):
            self.newest.update(some.key_values)
            return len(some.key_values)
        return add(self, some)

    with patch.object(LoadedRecords, "add", mistaken):
        yield


@contextmanager
def commits_offsets_at_once() -> Iterator[None]:
    """The offsets of a transaction are committed at once, like any others."""
    commit = group_coordinator.GroupCoordinator.commit

    def mistaken(self: Any, request: Any, answer: Any) -> None:
        commit(self, request._replace(producer=None), answer)

    with patch.object(group_coordinator.GroupCoordinator, "commit", mistaken):
        yield


@contextmanager
def takes_batches_of_fenced_producers_after_a_failover() -> Iterator[None]:
    """A new leader uses only its own log, not the coordinator's epoch of the producer."""
    verify = pending_produce._verify

    async def mistaken(appender: Any, partition: Partition, answer: Any) -> None:
        try:
            await verify(appender, partition, answer)
        except ApiError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH or partition.leader_epoch == 0:
                raise

    with patch.object(pending_produce, "_verify", mistaken):
        yield


@contextmanager
def appends_without_asking_the_coordinator() -> Iterator[None]:
    """The first batch of a transaction opens it in the log, although the coordinator does not know the partition."""

    def mistaken(appender: Any, partition: Partition, batch: memoryview, header: Any, place: int) -> Any:
        return appender.append_checked(partition, batch, header, place)

    with (
        patch.object(produce, "append_in_transaction", mistaken),
        patch.object(ProducerStates, "_check_in_transaction", lambda *_: None),
    ):
        yield


@contextmanager
def verifies_nothing_and_appends() -> Iterator[None]:
    """Each answer of the coordinator counts as a confirmation, also one that came from nobody."""

    async def mistaken(*_: Any, **__: Any) -> None:
        return None

    with patch.object(pending_produce, "_verify", mistaken):
        yield


@contextmanager
def takes_markers_of_earlier_epochs() -> Iterator[None]:
    """A late marker ends the next transaction. Each marker is sent once more after a while, so that late ones exist."""
    answered = MarkerSender.answered

    def again(self: MarkerSender, broker_id: int, place: Any, items: Any, codes: Any) -> None:
        answered(self, broker_id, place, items, codes)
        for each in items:
            self._timers.call_later(
                PAUSE_S, partial(self.send, each.marker, each.transaction_version, [place], each.is_wanted, str)
            )

    with patch.object(truncation, "check_marker", lambda *_: None), patch.object(MarkerSender, "answered", again):
        yield


@contextmanager
def answers_an_end_before_it_is_committed() -> Iterator[None]:
    """EndTxn is answered before its record is committed."""
    run = TransactionShard.run

    def mistaken(
        self: TransactionShard,
        name: str,
        decide: Callable[[Transaction | None, bool], Decision],
        answer: Callable[[Decision], object],
    ) -> None:
        answers = [answer]

        def hasty(found: Transaction | None, is_writing: bool) -> Decision:
            decision = decide(found, is_writing)
            if decision.write is not None and decision.write.state in PREPARED:
                answers.pop()(decision)
            return decision

        run(self, name, hasty, lambda decision: answers.pop()(decision) if answers else None)

    with patch.object(TransactionShard, "run", mistaken):
        yield


@contextmanager
def never_ends_what_timed_out() -> Iterator[None]:
    """The transaction of a producer that is gone stays open."""
    with patch.object(coordinator, "is_timed_out", lambda *_: False):
        yield


@contextmanager
def completes_before_the_markers_are_written() -> Iterator[None]:
    """The transaction completes before all markers are written, so missing ones come only without another fault."""
    send = MarkerSender.send

    def mistaken(
        self: MarkerSender, marker: Any, version: int, partitions: Any, is_wanted: Any, done: Callable[[], object]
    ) -> None:
        self._timers.call_later(0, done)
        send(self, marker, version, partitions, is_wanted, lambda: None)

    with patch.object(MarkerSender, "send", mistaken):
        yield


@contextmanager
def forgets_markers_in_a_failover() -> Iterator[None]:
    """The next coordinator does not send the markers that the one before had not sent."""
    with patch.object(TransactionShard, "serve", lambda _: iter(())):
        yield


@contextmanager
def ends_transactions_for_zombies() -> Iterator[None]:
    """An EndTxn of an earlier epoch ends the current transaction."""

    def mistaken(found: Transaction | None, is_writing: bool, by: ProducerEpoch, *arguments: Any) -> Decision:
        is_earlier = found is not None and by.epoch < found.epoch and found.state not in PREPARED
        return end(found, is_writing, found.producer if found is not None and is_earlier else by, *arguments)

    with patch.object(decisions, "end", mistaken):
        yield


@contextmanager
def judges_producers_before_pending_transactions() -> Iterator[None]:
    """A producer that ends its next transaction while markers of the one before are missing counts as fenced."""

    def mistaken(found: Transaction | None, is_writing: bool, by: ProducerEpoch, *arguments: Any) -> Decision:
        if found is not None and found.state in PREPARED and by == found.producer:
            return Decision(ErrorCode.PRODUCER_FENCED)
        return end(found, is_writing, by, *arguments)

    with patch.object(decisions, "end", mistaken):
        yield


@contextmanager
def judges_results_before_pending_transactions() -> Iterator[None]:
    """A producer that aborts its next transaction while its commit is being completed seems to change its decision."""

    def mistaken(found: Transaction | None, is_writing: bool, by: ProducerEpoch, commit: bool, *more: Any) -> Decision:
        if found is not None and found.state is (PREPARE_ABORT if commit else PREPARE_COMMIT):
            return Decision(ErrorCode.INVALID_TXN_STATE)
        return end(found, is_writing, by, commit, *more)

    with patch.object(decisions, "end", mistaken):
        yield


@contextmanager
def forgets_open_transactions_in_a_truncation() -> Iterator[None]:
    """Producers that are loaded after a truncation seem to have no open transaction."""
    replay = log_history._replay

    def mistaken(states: Any, segments: Any) -> None:
        replay(states, segments)
        for producer_id in list(states.transactions._open):
            states.producers[producer_id].transaction_first_offset = -1
            states.transactions.end(producer_id, 0)

    with patch.object(log_history, "_replay", mistaken):
        yield


@contextmanager
def counts_an_absent_partition_as_deleted() -> Iterator[None]:
    """A partition that the metadata lacks counts as deleted, without a tombstone."""
    with puts_an_older_backup_back(), patch.object(Deleted, "has", _is_absent):
        yield


def _is_absent(self: Deleted, partition: TopicPartition) -> bool:
    return state_of(self._image, partition) is None


@contextmanager
def goes_by_the_tombstone_of_an_earlier_topic() -> Iterator[None]:
    """A coordinator adds partitions that its image lacks, and an older image says whether they were deleted."""
    make = MarkerSender.__init__

    async def nothing() -> None:
        return None

    def hasty(self: MarkerSender, environment: Any, image: Any, timers: Any, counts: Any, catch_up: Any) -> None:
        del catch_up
        make(self, environment, image, timers, counts, nothing)

    with (
        delays_watches_while_topics_are_made_again(),
        patch.object(gate, "state_of", _state_or_unmade),
        patch.object(app_coordinators, "state_of", _state_or_unmade),
        patch.object(MarkerSender, "__init__", hasty),
    ):
        yield


def _state_or_unmade(image: MetadataImage, partition: TopicPartition) -> PartitionState:
    return state_of(image, partition) or UNMADE


UNDECIDED: Final = r"^(torn|lost|aborted and seen|seen and gone): "
SEEN: Final = r"^(aborted and seen|seen and gone): "
APART: Final = r"^(offsets|copied) apart"
ZOMBIE: Final = r"^zombie: "
ENDLESS: Final = r"^never ends: "
FRESH: Final = r"^fresh: |^never ends: a transaction of fresh"

TRANSACTION_MUTANTS: Final[Mapping[Callable[[], Any], str]] = {
    answers_an_end_before_it_is_committed: r"^lost: ",
    appends_without_asking_the_coordinator: f"{UNDECIDED}|{ZOMBIE}|{ENDLESS}",
    commits_offsets_at_once: APART,
    completes_before_the_markers_are_written: f"{UNDECIDED}|{ENDLESS}",
    counts_an_absent_partition_as_deleted: FRESH,
    counts_pending_offsets_when_it_loads: APART,
    goes_by_the_tombstone_of_an_earlier_topic: FRESH,
    ends_transactions_for_zombies: f"{UNDECIDED}|{ZOMBIE}",
    fences_without_a_new_epoch: f"{UNDECIDED}|{ZOMBIE}",
    indexes_no_aborted_transactions: SEEN,
    forgets_aborted_transactions_in_a_truncation: SEEN,
    forgets_markers_in_a_failover: ENDLESS,
    forgets_open_transactions_in_a_truncation: f"{UNDECIDED}|^last stable offset",
    judges_producers_before_pending_transactions: r"^dead: ",
    judges_results_before_pending_transactions: r"^dead: ",
    never_ends_what_timed_out: ENDLESS,
    reads_past_open_transactions: SEEN,
    sends_markers_before_the_decision_is_committed: f"{UNDECIDED}|{APART}",
    takes_batches_of_fenced_producers_after_a_failover: f"{ZOMBIE}|{ENDLESS}",
    takes_markers_of_earlier_epochs: f"{UNDECIDED}|{APART}",
    verifies_nothing_and_appends: f"{UNDECIDED}|{ZOMBIE}|{ENDLESS}",
}
"""The regular expression of the violation that shows each mistake."""

TRANSACTION_SEEDS: Final[Mapping[str, int]] = {
    "answers-an-end-before-it-is-committed": 9,
    "completes-before-the-markers-are-written": 2,
    "forgets-aborted-transactions-in-a-truncation": 6,
    "goes-by-the-tombstone-of-an-earlier-topic": 2,
    "sends-markers-before-the-decision-is-committed": 6,
}
"""The seeds from which the search begins, if not 0."""
