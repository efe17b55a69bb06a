"""The transaction coordinator of one broker, which passes each request to the shard of the transactional id.

Handlers pass a callback for the answer. The coordinator's `runtime` knows the partitions of `__transaction_state` that
this broker leads. All calls come from the event-loop thread, and none of them blocks.

The state of the transactional ids whose records are in one partition of `__transaction_state`. Each state change is
first written to the partition. Once the record is committed, the state change takes effect, the request is
answered, and the markers of an ended transaction are sent.

The producer ids that InitProducerId returns; each id is assigned at most once in the life of the cluster. Brokers
allocate blocks of 1,000 ids in the metadata store. A broker allocates the next block when a tenth of its block is
left, so that a producer rarely waits. The ids that a broker has left when it stops are never assigned.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator
from functools import partial
from typing import Final

import msgspec

from barnabas_broker.coordinators.runtime.shard import LeftOut, Runtime, RuntimeEnvironment
from barnabas_broker.coordinators.runtime.turns import Pace
from barnabas_broker.coordinators.runtime.writer import PartitionWriter
from barnabas_broker.coordinators.transactions import decisions
from barnabas_broker.coordinators.transactions.decisions import (
    BUSY,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    FENCING_EPOCH,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    PREPARE_COMMIT,
    PREPARED,
    Decision,
    Transaction,
    TransactionCounts,
    TransactionRecord,
    abort,
    completed,
    decode,
    is_expired,
    is_timed_out,
)
from barnabas_broker.wire.key_values import Marker, ProducerEpoch
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""The pause in seconds before a completed transaction that could not be stored is written again."""

SendMarkers = Callable[[Marker, int, Collection[TopicPartition], Callable[[], bool], Callable[[], object]], object]
"""The function that sends a marker: it takes the marker, its transaction version, the partitions, and two callbacks.

The first callback returns False to stop the retries; the second is called when no partition needs the marker any more.
"""


class TransactionEnvironment(msgspec.Struct, frozen=True):
    """The dependencies of the transaction coordinator."""

    config: BrokerConfig
    clock: Clock
    timers: Timers
    send_markers: SendMarkers
    transaction_version: Callable[[], int]
    """Return the finalized transaction.version of the cluster."""
    ask_new_id: Callable[[Callable[[int], object]], object]
    """Allocate a producer id, and call the callback with the id; if the allocation fails, never call the callback."""
    counts: TransactionCounts
    knows: Callable[[TopicPartition], bool]
    """Return True if this broker's image of the metadata has a partition, so that markers can be sent to it."""


class TransactionShard:
    """The transactional ids of one partition; each loading of the partition creates a new shard."""

    def __init__(self, environment: TransactionEnvironment, writer: PartitionWriter[TransactionRecord]) -> None:
        self.writer = writer
        self.transactions: dict[str, Transaction] = {}
        self._environment = environment

    def decoder(self) -> Callable[[bytes, bytes], TransactionRecord | None]:
        """Return the function that decodes the records of the partition."""
        return decode

    def apply(self, record: TransactionRecord) -> None:
        """Apply a record, which was just committed or read from the log, to the transactions in memory."""
        if record.transaction is None:
            self.transactions.pop(record.transactional_id, None)
        else:
            self.transactions[record.transactional_id] = record.transaction

    def restore(self, left_out: LeftOut) -> Iterator[None]:  # noqa: ARG002  # The runtime passes left_out.
        """Return an empty iterator: `apply` has restored all state, because one record holds a whole transaction."""
        return iter(())

    def contents(self) -> str:
        """Return the number of transactional ids as text for a log line."""
        return f"{len(self.transactions)} transactional ids"

    def close(self) -> None:
        """Do nothing when this broker stops coordinating the partition.

        The next coordinator sends the transaction markers that have not been written.
        """

    def serve(self) -> Iterator[None]:
        """Send the markers of each loaded transaction that is prepared to commit or abort."""
        pace = Pace()
        for transactional_id, transaction in list(self.transactions.items()):
            if transaction.state in PREPARED:
                self._send_markers(transactional_id, transaction)
            if pace.spent(1 + len(transaction.partitions)):
                yield

    def now_ms(self) -> int:
        """Return the current wall-clock time in ms."""
        return self._environment.clock.now_ms()

    def cluster_version(self) -> int:
        """Return the finalized transaction.version of the cluster."""
        return self._environment.transaction_version()

    def lacks_id(self, transactional_id: str, *, if_unknown: bool) -> bool:
        """True if the next request of the transactional id may need a new producer id.

        Return `if_unknown` for an unknown transactional id.
        """
        found = self.transactions.get(transactional_id)
        return if_unknown if found is None else found.epoch >= LAST_CLIENT_EPOCH

    def run(
        self,
        transactional_id: str,
        decide: Callable[[Transaction | None, bool], Decision],
        answer: Callable[[Decision], object],
    ) -> None:
        """Decide on a request, write the changed transaction, and answer once the write is committed.

        `decide` takes the transaction and whether a change of it is being written; it must not change it once more.
        """
        decision = decide(self.transactions.get(transactional_id), self.writer.is_writing(transactional_id))
        written = decision.write
        if written is None:
            answer(decision)
            return
        is_last = written.state in PREPARED and written.epoch == FENCING_EPOCH
        if (written.next_producer_id if is_last else written.producer_id) == NO_PRODUCER_ID:
            # The caller passed no new producer id, but a new producer id is needed; the client retries.
            answer(BUSY)
            return
        self._write(transactional_id, written, lambda error: answer(Decision(error) if error else decision))

    def _write(self, transactional_id: str, written: Transaction, answer: Callable[[ErrorCode], object]) -> None:
        record = TransactionRecord(transactional_id, written, self.cluster_version())

        def settled() -> None:
            if self.transactions.get(transactional_id) is written:
                self._follow_up(transactional_id, written)

        def finished(error: ErrorCode) -> None:
            # A write that timed out may still be committed, so wait until its outcome is known.
            self.writer.when_idle(transactional_id, settled)
            answer(error)

        self.writer.submit(transactional_id, (record,), finished)

    def _follow_up(self, transactional_id: str, committed: Transaction) -> None:
        counts = self._environment.counts
        counts.committed += committed.state is COMPLETE_COMMIT
        counts.aborted += committed.state is COMPLETE_ABORT
        if committed.state in PREPARED and not self.writer.is_closed:
            self._send_markers(transactional_id, committed)

    def _send_markers(self, transactional_id: str, prepared: Transaction) -> None:
        marker = Marker(
            prepared.producer_id, prepared.epoch, self.writer.leader_epoch, prepared.state is PREPARE_COMMIT
        )
        self._environment.send_markers(
            marker,
            prepared.client_version,
            prepared.partitions,
            lambda: not self.writer.is_closed,
            partial(self._complete, transactional_id, prepared),
        )

    def _complete(self, transactional_id: str, prepared: Transaction) -> None:
        """Store the completed transaction; retry until it is stored or another broker becomes the coordinator."""
        if self.writer.is_closed or self.transactions.get(transactional_id) is not prepared:
            return

        def answer(error: ErrorCode) -> None:
            if error:
                again = partial(self._complete, transactional_id, prepared)
                self._environment.timers.call_later(_RETRY_S, again)

        if self.writer.is_writing(transactional_id):
            answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            self._write(transactional_id, completed(prepared, self.now_ms()), answer)

    def end_timed_out(self) -> Iterator[None]:
        """Abort the transactions that have timed out."""
        pace = Pace()
        for transactional_id, transaction in list(self.transactions.items()):
            if is_timed_out(transaction, self.now_ms()):
                self._end_timed_out(transactional_id, transaction)
            if pace.spent(1):
                yield

    def _end_timed_out(self, transactional_id: str, transaction: Transaction) -> None:
        def end(new_id: int) -> None:
            is_unchanged = self.transactions.get(transactional_id) is transaction
            if is_unchanged and not self.writer.is_closed and not self.writer.is_writing(transactional_id):
                _logger.warning(
                    "the transaction of the transactional id %s has timed out and is aborted", transactional_id
                )
                version = self.cluster_version()
                self._write(transactional_id, abort(transaction, new_id, self.now_ms(), version), lambda _: None)

        if self.lacks_id(transactional_id, if_unknown=False):
            self._environment.ask_new_id(end)
        else:
            end(NO_PRODUCER_ID)

    def expire(self) -> Iterator[None]:
        """Remove the transactional ids that have expired."""
        pace = Pace()
        for transactional_id, transaction in list(self.transactions.items()):
            is_due = is_expired(transaction, self._environment.config.transactional_id_expiration_ms, self.now_ms())
            if is_due and not self.writer.is_closed and not self.writer.is_writing(transactional_id):
                transaction.enter(DEAD, self.now_ms())
                record = TransactionRecord(transactional_id, None)
                self.writer.submit(transactional_id, (record,), lambda _: None)
            if pace.spent(1):
                yield


OnDecision = Callable[[Decision], object]


class TransactionCoordinator:
    """The coordinator of the transactional ids whose partition of __transaction_state this broker leads."""

    def __init__(
        self, environment: TransactionEnvironment, of_runtime: RuntimeEnvironment, partition_count: int
    ) -> None:
        self._config = environment.config
        self._knows = environment.knows
        self.counts = environment.counts
        self.runtime = Runtime(
            of_runtime, partition_count, partial(TransactionShard, environment), TransactionShard.serve
        )

    def start(self) -> None:
        """Schedule the checks for transactions that have timed out, and for transactional ids that have expired."""
        timeouts_ms = self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        self.runtime.sweep_every(timeouts_ms / 1000, TransactionShard.end_timed_out)
        self.runtime.sweep_every(expiry_ms / 1000, TransactionShard.expire)

    def lacks_id(self, transactional_id: str, *, if_unknown: bool) -> bool:
        """True if the next request of the transactional id may need a new producer id.

        Raises ApiError if this broker does not coordinate the id, or is still loading it.
        """
        return self.runtime.find(transactional_id).lacks_id(transactional_id, if_unknown=if_unknown)

    def init_producer_id(
        self, transactional_id: str, expected: ProducerEpoch, timeout_ms: int, new_id: int, answer: OnDecision
    ) -> None:
        """Handle an InitProducerId, which fences all earlier producers that use the transactional id."""

        def decide(shard: TransactionShard, found: Transaction | None, is_writing: bool) -> Decision:
            return decisions.init_producer_id(
                found, is_writing, expected, timeout_ms, new_id, shard.now_ms(), shard.cluster_version()
            )

        self._run(transactional_id, decide, answer)

    def add_partitions(
        self,
        transactional_id: str,
        by: ProducerEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        answer: OnDecision,
    ) -> None:
        """Add partitions to a transaction; none is added if this broker does not know all of them.

        The request is AddPartitionsToTxn, AddOffsetsToTxn, or a Produce of a client with transaction.version 2. A
        broker that does not know a partition could not send its marker, and would take the partition for a deleted one.
        """

        def decide(shard: TransactionShard, found: Transaction | None, is_writing: bool) -> Decision:
            if not all(map(self._knows, partitions)):
                return Decision(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return decisions.add_partitions(found, is_writing, by, partitions, client_version, shard.now_ms())

        self._run(transactional_id, decide, answer)

    def verify(
        self, transactional_id: str, by: ProducerEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return an error code for each partition, NONE if the partition is in the producer's open transaction.

        Raises ApiError if this broker does not coordinate the id, or is still loading it.
        """
        _check_named(transactional_id)
        found = self.runtime.find(transactional_id).transactions.get(transactional_id)
        return {partition: decisions.verify(found, by, partition) for partition in partitions}

    def end(
        self,
        transactional_id: str,
        by: ProducerEpoch,
        *,
        commit: bool,
        client_version: int,
        new_id: int,
        answer: OnDecision,
    ) -> None:
        """Handle an EndTxn: answer once the decision is stored, before the markers are written."""

        def decide(shard: TransactionShard, found: Transaction | None, is_writing: bool) -> Decision:
            return decisions.end(found, is_writing, by, commit, client_version, new_id, shard.now_ms())

        self._run(transactional_id, decide, answer)

    def _run(
        self,
        transactional_id: str,
        decide: Callable[[TransactionShard, Transaction | None, bool], Decision],
        answer: OnDecision,
    ) -> None:
        try:
            _check_named(transactional_id)
            shard = self.runtime.find(transactional_id)
        except ApiError as error:
            answer(Decision(error.code))
            return
        shard.run(transactional_id, partial(decide, shard), answer)

    def describe(self, transactional_id: str) -> Transaction:
        """Return the transaction of a transactional id.

        Raises ApiError, with TRANSACTIONAL_ID_NOT_FOUND if the transactional id does not exist.
        """
        _check_named(transactional_id)
        found = self.runtime.find(transactional_id).transactions.get(transactional_id)
        if found is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return found

    def transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Return all transactional ids with their transactions. Raises ApiError while a partition is loading."""
        if self.runtime.partition_counts()["loading"]:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return self.loaded_transactions()

    def loaded_transactions(self) -> Iterator[tuple[str, Transaction]]:
        """Yield each transactional id of the loaded partitions with its transaction.

        Transactions may change during the iteration.
        """
        for shard in self.runtime.loaded():
            yield from list(shard.transactions.items())


def _check_named(transactional_id: str) -> None:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id must not be empty")


_PREFETCH_FRACTION: Final = 10


class ProducerIds:
    """The producer ids that this broker may assign. `allocate` returns a block of unused ids, or raises ApiError."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._prefetch_at = 0
        self._next_block: asyncio.Future[range] | None = None
        self._refilling = asyncio.Lock()

    async def next_id(self) -> int:
        """Return a new producer id. Raises ApiError if a new block is needed and cannot be allocated."""
        if not self._block:
            async with self._refilling:
                await self._refill()
        producer_id, self._block = self._block[0], self._block[1:]
        if len(self._block) == self._prefetch_at and self._next_block is None:
            self._next_block = asyncio.ensure_future(self._allocate())
        return producer_id

    async def _refill(self) -> None:
        while not self._block:
            fetched = self._next_block or asyncio.ensure_future(self._allocate())
            self._next_block = None
            self._block = await fetched
        self._prefetch_at = len(self._block) // _PREFETCH_FRACTION
