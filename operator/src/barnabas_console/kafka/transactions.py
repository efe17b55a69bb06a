"""The open transactions in partitions, read row by row: what one broker or one right withholds hides no other row."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest, ListTransactionsRequest

from barnabas_console.model.details import HANGING, HANGS_AFTER_S, OPEN, UNKNOWN, UNREAD, TransactionRow
from barnabas_console.model.messages import time_text
from barnabas_console.model.snapshot import Seen, Unknown
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.asking import Asking, by_broker

UNDECIDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")
STATES: Final = (HANGING, UNKNOWN, UNREAD, OPEN)


class _Known(NamedTuple):
    """The transactional ids that coordinators report, by producer id and partition."""

    names: Mapping[tuple[int, TopicPartition], str]
    is_whole: bool
    """True if every coordinator has answered; otherwise a transaction without an id may have one."""


def transactions_of(
    client: Any, seen: Seen, held_back: Mapping[TopicPartition, int], now_ms: int
) -> Sequence[TransactionRow]:
    """Return the open transactions of these partitions, those that hang first. Raises ClusterUnreachable.

    A partition whose producers cannot be read has one row, in the state UNREAD.
    """
    if not held_back:
        return ()
    asking = Asking(client)
    broker_ids = [each.broker_id for each in seen.brokers]
    asking.meet(broker_ids)
    known = _known(asking, broker_ids)
    rows: list[TransactionRow] = []
    unread = dict.fromkeys(held_back, Unknown.NO_ANSWER)
    leaders = by_broker(held_back, lambda each: seen.partitions[each].leader)
    for _, _, answer in asking.ask({leader: [_producers(some)] for leader, some in leaders.items()}):
        for where, part in _parts(answer):
            if part.error_code == ErrorCode.NONE:
                del unread[where]
                rows += _open(where, part, held_back[where], known, now_ms)
            elif part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unread[where] = Unknown.NO_RIGHT
    rows += [TransactionRow(*where, UNREAD, held_back[where], why=why) for where, why in unread.items()]
    return sorted(rows, key=lambda each: (STATES.index(each.state), -each.idle_s))


def _known(asking: Asking, broker_ids: Sequence[int]) -> _Known:
    """Return what the coordinators know; each lists its own transactions, and is asked for no others."""
    listing = ListTransactionsRequest(state_filters=list(UNDECIDED), producer_id_filters=[])
    asked, is_whole = {}, True
    for broker_id, _, answer in asking.ask({each: [listing] for each in broker_ids}):
        is_whole = is_whole and answer.error_code == ErrorCode.NONE
        ids = [each.transactional_id for each in answer.transaction_states]
        if ids:
            asked[broker_id] = [DescribeTransactionsRequest(transactional_ids=ids)]
    names = {}
    for _, _, answer in asking.ask(asked):
        for each in answer.transaction_states:
            for topic in each.topics if each.error_code == ErrorCode.NONE else ():
                for partition in topic.partitions:
                    names[each.producer_id, TopicPartition(topic.topic, partition)] = each.transactional_id
    return _Known(names, is_whole and not asking.failures)


def _producers(partitions: Sequence[TopicPartition]) -> Any:
    topics: dict[str, list[int]] = defaultdict(list)
    for each in partitions:
        topics[each.topic].append(each.partition)
    of_topic = DescribeProducersRequest.TopicRequest
    return DescribeProducersRequest(
        topics=[of_topic(name=name, partition_indexes=some) for name, some in topics.items()]
    )


def _parts(answer: Any) -> Iterator[tuple[TopicPartition, Any]]:
    for topic in answer.topics:
        for part in topic.partitions:
            yield TopicPartition(topic.name, part.partition_index), part


def _open(where: TopicPartition, part: Any, held_back: int, known: _Known, now_ms: int) -> Iterator[TransactionRow]:
    for each in part.active_producers:
        if each.current_txn_start_offset < 0:
            continue
        name = known.names.get((each.producer_id, where))
        is_old = now_ms - each.last_timestamp > HANGS_AFTER_S * 1000
        yield TransactionRow(
            topic=where.topic,
            partition=where.partition,
            state=OPEN if name is not None else HANGING if is_old and known.is_whole else UNKNOWN,
            held_back=held_back,
            transactional_id=name,
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            coordinator_epoch=each.coordinator_epoch,
            start_offset=each.current_txn_start_offset,
            last_write=time_text(each.last_timestamp),
            idle_s=max(0, now_ms - each.last_timestamp) // 1000,
        )
