"""The requests of transactions as clients send them, in every version."""

import asyncio
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from coordinator_world import World
from kafka.protocol import producer
from kafka.protocol.admin import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.api_message import ApiMessage
from transaction_world import FLIGHTS, TIMEOUT_MS, TransactionWorld

from barnabas_broker.coordinators.transactions.coordinator import ProducerIds
from barnabas_broker.coordinators.transactions.gate import TransactionGate
from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.large_responses import LargeResponses
from barnabas_broker.handlers.table import message_handler
from barnabas_broker.metadata.model import TRANSACTION_VERSION, PartitionState, TopicDocument
from barnabas_broker.storage.producer_state import ProducerCount, ProducerStates
from barnabas_broker.wire.encoder import decode_request, decode_response, encode_response
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.key_values import ProducerEpoch
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition

INIT, ADD, ADD_OFFSETS, END, COMMIT = 22, 24, 25, 26, 28
OFFSETS = TopicPartition(CONSUMER_OFFSETS, 0)


class TxnOffsetCommitRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request to commit offsets in a transaction, in the versions of Kafka 4.4."""


COMMIT_REQUEST: Any = TxnOffsetCommitRequest
OFFSETS_TOPIC = COMMIT_REQUEST.TxnOffsetCommitRequestTopic


def versions(api_key: int, since: int = 0, until: int = 99) -> pytest.MarkDecorator:
    spec = API_SPECS[api_key]
    return pytest.mark.parametrize("version", range(max(spec.min_version, since), min(spec.max_version, until) + 1))


def document(name: str) -> TopicDocument:
    return TopicDocument(name, UUID(int=len(name)), (PartitionState((1,), 1, 0, (1,)),))


class Broker:
    """A broker that coordinates everything, as a producer sees it."""

    def __init__(self) -> None:
        self.world, self.groups = TransactionWorld(), World()
        self.features = {TRANSACTION_VERSION: 2}
        image: Any = SimpleNamespace(
            topics={name: document(name) for name in ("flights", CONSUMER_OFFSETS, TRANSACTION_STATE)},
            features=self.features,
            subscribe=lambda _: None,
            topic_name=lambda topic_id: "flights" if topic_id.int == len("flights") else None,
        )
        self.producers = ProducerStates(ProducerCount())
        log = SimpleNamespace(log=SimpleNamespace(producers=self.producers))
        links: Any = SimpleNamespace(
            spawn=asyncio.ensure_future, links=None, clock=self.world.timers.clock, timeout=asyncio.timeout
        )
        gate = TransactionGate(1, links, image, self.world.coordinator, asyncio.sleep)
        self.environment: Any = SimpleNamespace(
            authorizer=None,
            transactions=self.world.coordinator,
            groups=self.groups.coordinator,
            gate=gate,
            answers=LargeResponses(self.world.timers.clock, self.world.timers),
            image=image,
            clock=self.world.timers.clock,
            config=SimpleNamespace(transaction_max_timeout_ms=900_000),
            producer_ids=ProducerIds(self._allocate),
            replicas=SimpleNamespace(lookup=SimpleNamespace(find=lambda *_: log)),
        )

    async def _allocate(self) -> range:
        return range(1000, 2000)

    def ask(self, request: Any, version: int) -> Any:
        """Return the response to one request, and check that it can be encoded."""
        return asyncio.run(self._ask(request, version))

    async def _ask(self, request: Any, version: int) -> Any:
        api_key = request.API_KEY
        decoded = decode_request(api_key, version, memoryview(bytes(request.encode(version=version))))
        context = RequestContext(api_key, version, Client("PLAINTEXT", "a:1"))
        response = message_handler(api_key)(self.environment, context, decoded)
        if isawaitable(response):
            waiting = asyncio.ensure_future(response)
            while not waiting.done():
                await asyncio.sleep(0)
                self.world.timers.pass_time()
                self.groups.timers.pass_time()
            response = waiting.result()
        encode_response(response, version, 7)
        return response

    def describe(self, *transactional_ids: str) -> list[Any]:
        """Return the states in the response to DescribeTransactions, as a client reads it."""
        response = self.ask(DescribeTransactionsRequest(transactional_ids=list(transactional_ids)), 0)
        frame = memoryview(encode_response(response, 0, 7))
        found: list[Any] = decode_response("DescribeTransactionsResponse", 0, frame[4:]).transaction_states
        return found

    def init(self, version: int = 4, **fields: Any) -> Any:
        named = {"transactional_id": "pay", "transaction_timeout_ms": TIMEOUT_MS, "producer_id": -1}
        request = producer.InitProducerIdRequest(**{**named, "producer_epoch": -1, **fields})
        return self.ask(request, version)

    def begun(self) -> ProducerEpoch:
        """Begin a transaction; return its producer."""
        answer = self.init()
        by = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        assert self.world.add(by, partition=FLIGHTS) is ErrorCode.NONE
        return by

    def end(self, by: ProducerEpoch, version: int, *, committed: bool = True) -> Any:
        request = producer.EndTxnRequest(
            transactional_id="pay", producer_id=by.producer_id, producer_epoch=by.epoch, committed=committed
        )
        return self.ask(request, version)

    def commit(self, by: ProducerEpoch, version: int, group_id: str = "readers") -> list[int]:
        """Send a TxnOffsetCommit of a partition that exists and of one that does not; return the errors."""
        partition = OFFSETS_TOPIC.TxnOffsetCommitRequestPartition
        partitions = [
            partition(partition_index=index, committed_offset=5, committed_leader_epoch=0, committed_metadata="")
            for index in (0, 9)
        ]
        request = COMMIT_REQUEST(
            transactional_id="pay",
            group_id=group_id,
            producer_id=by.producer_id,
            producer_epoch=by.epoch,
            topics=[OFFSETS_TOPIC(name="flights", topic_id=UUID(int=len("flights")), partitions=partitions)],
        )
        (topic,) = self.ask(request, version).topics
        return [each.error_code for each in topic.partitions]


@pytest.fixture
def broker() -> Broker:
    return Broker()


@versions(INIT)
def test_each_new_producer_of_a_transactional_id_gets_the_next_epoch(broker: Broker, version: int) -> None:
    answers = [broker.init(version) for _ in range(2)]
    assert [(each.error_code, each.producer_id, each.producer_epoch) for each in answers] == [
        (0, 1000, 0),
        (0, 1000, 1),
    ]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_an_invalid_init_producer_id_is_refused(broker: Broker, fields: dict[str, Any], error: ErrorCode) -> None:
    assert broker.init(**fields).error_code == error


@versions(INIT, since=3)
def test_a_fenced_producer_gets_the_error_code_of_its_version(broker: Broker, version: int) -> None:
    broker.init()
    broker.init()
    broker.init()
    refused = broker.init(version, producer_id=1000, producer_epoch=0)
    assert refused.error_code == (ErrorCode.PRODUCER_FENCED if version >= 4 else ErrorCode.INVALID_PRODUCER_EPOCH)


@versions(END)
def test_end_txn_writes_a_commit_marker(broker: Broker, version: int) -> None:
    by = broker.begun()
    answer = broker.end(by, version)
    following = (by.producer_id, 1) if version >= 5 else (by.producer_id, 0)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, *following)
    assert [each.is_commit for each in broker.world.write_markers()] == [True]


def test_end_txn_version_5_requires_transaction_version_2(broker: Broker) -> None:
    broker.features[TRANSACTION_VERSION] = 1
    assert broker.end(broker.begun(), 5).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_txn_offset_commit_version_5_adds_no_partition_below_transaction_version_2(broker: Broker) -> None:
    broker.features[TRANSACTION_VERSION] = 1
    assert broker.commit(broker.begun(), 5)[0] == ErrorCode.TRANSACTION_ABORTABLE


@versions(ADD, until=3)
def test_partitions_are_added_together_or_not_at_all(broker: Broker, version: int) -> None:
    answer = broker.init()

    def add(*names: str) -> list[tuple[str, int]]:
        topic = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = producer.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="pay",
            v3_and_below_producer_id=answer.producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[topic(name=name, partitions=[0]) for name in names],
        )
        results = broker.ask(request, version).results_by_topic_v3_and_below
        return [(each.name, each.results_by_partition[0].partition_error_code) for each in results]

    assert add("flights", "gone", CONSUMER_OFFSETS) == [
        ("flights", ErrorCode.OPERATION_NOT_ATTEMPTED),
        ("gone", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (CONSUMER_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    assert add("flights") == [("flights", ErrorCode.NONE)]
    assert broker.world.coordinator.describe("pay").partitions == {FLIGHTS}


@versions(COMMIT, until=5)  # kafka-python does not know version 6.
def test_committed_offsets_of_an_open_transaction_are_pending(broker: Broker, version: int) -> None:
    by = broker.begun()
    if version < 5:
        refused = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
        assert broker.commit(by, version) == [refused, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        request = producer.AddOffsetsToTxnRequest(
            transactional_id="pay", producer_id=by.producer_id, producer_epoch=by.epoch, group_id="readers"
        )
        assert broker.ask(request, min(version, 4)).error_code == ErrorCode.NONE
    assert broker.commit(by, version) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.world.coordinator.describe("pay").partitions == {FLIGHTS, OFFSETS}
    assert broker.groups.coordinator.unstable("readers") == {FLIGHTS}
    assert broker.groups.coordinator.committed("readers") == {}


@versions(COMMIT, until=5)  # kafka-python does not know version 6.
def test_a_transactional_offset_commit_of_another_epoch_gets_a_code_that_every_version_knows(
    broker: Broker, version: int
) -> None:
    by = broker.begun()
    assert broker.commit(by._replace(epoch=by.epoch + 1), version)[0] == ErrorCode.INVALID_PRODUCER_EPOCH


@versions(ADD, since=4)
@pytest.mark.parametrize("verify_only", [False, True])
def test_a_partition_that_the_coordinator_does_not_know_is_not_added(
    broker: Broker, version: int, verify_only: bool
) -> None:
    by = broker.begun()
    transaction = producer.AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    request = producer.AddPartitionsToTxnRequest(
        transactions=[
            transaction(
                transactional_id="pay",
                producer_id=by.producer_id,
                producer_epoch=by.epoch,
                verify_only=verify_only,
                topics=[transaction.AddPartitionsToTxnTopic(name="flights", partitions=[0, 1])],
            )
        ]
    )
    (result,) = broker.ask(request, version).results_by_transaction
    (topic,) = result.topic_results
    codes = [each.partition_error_code for each in topic.results_by_partition]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert broker.world.coordinator.describe("pay").partitions == {FLIGHTS}


@versions(ADD_OFFSETS)
def test_the_offsets_of_a_group_are_added_again_later_if_the_coordinator_does_not_know_their_partition(
    broker: Broker, version: int
) -> None:
    by = broker.begun()
    broker.world.unknown = {OFFSETS}
    request = producer.AddOffsetsToTxnRequest(
        transactional_id="pay", producer_id=by.producer_id, producer_epoch=by.epoch, group_id="readers"
    )
    assert broker.ask(request, version).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.world.unknown = set()
    assert broker.ask(request, version).error_code == ErrorCode.NONE


def test_txn_offset_commit_is_sent_again_if_the_coordinator_does_not_know_the_offsets_topic(broker: Broker) -> None:
    by = broker.begun()
    document = broker.environment.image.topics.pop(CONSUMER_OFFSETS)
    assert broker.commit(by, 5)[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.environment.image.topics[CONSUMER_OFFSETS] = document
    assert broker.commit(by, 5)[0] == ErrorCode.NONE


def test_a_transactional_offset_commit_with_an_empty_group_id_is_refused(broker: Broker) -> None:
    assert broker.commit(broker.begun(), 5, group_id="")[0] == ErrorCode.INVALID_GROUP_ID


def test_describe_transactions_returns_states_and_errors(broker: Broker) -> None:
    by = broker.begun()
    states = broker.describe("pay", "gone", "")
    assert [each.error_code for each in states] == [
        0,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    ]
    told = states[0]
    assert (told.transaction_state, told.producer_id, told.transaction_timeout_ms) == ("Ongoing", by[0], TIMEOUT_MS)
    assert [(each.topic, list(each.partitions)) for each in told.topics] == [("flights", [0])]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["pay"]),
        ({"state_filters": ["Ongoing"]}, ["pay"]),
        ({"state_filters": ["Empty"]}, []),
        ({"state_filters": ["Nonsense"]}, []),
        ({"producer_id_filters": [3]}, []),
        ({"duration_filter": 10_000}, []),
        ({"transactional_id_pattern": "p.*"}, ["pay"]),
        ({"transactional_id_pattern": "p"}, []),
    ],
)
def test_transactions_are_listed_by_filters(broker: Broker, filters: dict[str, Any], found: list[str]) -> None:
    broker.begun()
    fields = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None}
    answer = broker.ask(ListTransactionsRequest(**{**fields, **filters}), 2)
    assert (answer.error_code, [each.transactional_id for each in answer.transaction_states]) == (0, found)
    assert answer.unknown_state_filters == [each for each in filters.get("state_filters", []) if each == "Nonsense"]


@pytest.mark.parametrize("pattern", ["(", "(?:p?){1000}!"])
def test_an_invalid_or_unbounded_pattern_is_refused(broker: Broker, pattern: str) -> None:
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    assert broker.ask(request, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
