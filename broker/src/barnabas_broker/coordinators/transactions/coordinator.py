"""The transaction coordinator of one broker, which passes each request to the shard of the transactional id.

Handlers pass a callback for the answer. The coordinator's `runtime` knows the partitions of `__transaction_state` that
this broker leads. All calls come from the event-loop thread, and none of them blocks.
"""

from collections.abc import Callable, Collection, Iterator
from functools import partial

from barnabas_broker.coordinators.runtime.runtime import Runtime
from barnabas_broker.coordinators.runtime.shard import RuntimeEnvironment
from barnabas_broker.coordinators.transactions import decisions
from barnabas_broker.coordinators.transactions.decisions import Decision
from barnabas_broker.coordinators.transactions.shard import TransactionEnvironment, TransactionShard
from barnabas_broker.coordinators.transactions.transaction import Transaction
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.topic_partition import TopicPartition

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
