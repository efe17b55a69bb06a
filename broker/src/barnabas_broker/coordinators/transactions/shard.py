"""The state of the transactional ids whose records are in one partition of `__transaction_state`.

Each state change is first written to the partition. Once the record is committed, the state change takes effect, the
request is answered, and the markers of an ended transaction are sent.
"""

import logging
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.coordinators.runtime.shard import LeftOut
from barnabas_broker.coordinators.runtime.turns import Pace
from barnabas_broker.coordinators.runtime.writer import PartitionWriter
from barnabas_broker.coordinators.transactions.decisions import (
    BUSY,
    Decision,
    abort,
    completed,
    is_expired,
    is_timed_out,
)
from barnabas_broker.coordinators.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    FENCING_EPOCH,
    LAST_CLIENT_EPOCH,
    NO_PRODUCER_ID,
    PREPARE_COMMIT,
    PREPARED,
    Transaction,
    TransactionCounts,
    TransactionRecord,
    decode,
)
from barnabas_broker.wire.key_values import Marker
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

_logger = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""The pause in seconds before a completed transaction that could not be stored is written again."""

SendMarkers = Callable[[Marker, int, Collection[TopicPartition], Callable[[], bool], Callable[[], object]], object]
"""The function that sends a marker: it takes the marker, its transaction version, the partitions, and two callbacks.

The first callback returns False to stop the retries; the second is called when no partition needs the marker any more.
"""


class TransactionEnvironment(NamedTuple):
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
