"""A follower's Fetch: kafka-python, kio and our parser read our requests, and our parser reads responses."""

import importlib
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaRequest
from kafka.protocol.consumer import FetchResponse as KafkaResponse
from kio.serial import entity_reader
from message_samples import MemoryFile

from barnabas_broker.wire.fetch import FetchPartition, FetchResult, FetchTopic, encode_fetch_response, parse_fetch
from barnabas_broker.wire.framing import FileSlice, Part, parse_request_header
from barnabas_broker.wire.replica_fetch import (
    VERSION,
    MalformedResponse,
    ReplicaFetch,
    encode_replica_fetch,
    parse_replica_fetch_response,
)
from harness.soak import size

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
topic_ids = st.binary(min_size=16, max_size=16).filter(any)
partitions = st.builds(FetchPartition, int32s, int32s, int64s, int32s, int64s, int32s)
asked_topics = st.dictionaries(topic_ids, st.lists(partitions, max_size=4), max_size=3)
forgotten_topics = st.dictionaries(topic_ids, st.lists(int32s, max_size=3), max_size=2)
fetches = st.builds(
    ReplicaFetch,
    client_id=st.just("broker-4-fetcher"),
    broker_id=st.integers(0, 2**31 - 1),
    broker_epoch=st.integers(0, 2**63 - 1),
    max_wait_ms=int32s,
    min_bytes=int32s,
    max_bytes=int32s,
    session_id=int32s,
    session_epoch=int32s,
)


Asked = dict[bytes, list[FetchPartition]]
Forgotten = dict[bytes, list[int]]
Answers = list[tuple[bytes, list[FetchResult]]]


def joined(parts: list[Part]) -> bytes:
    return b"".join(
        part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else bytes(part) for part in parts
    )


@settings(max_examples=size(33, 1_000))
@given(fetch=fetches, topics=asked_topics, forgotten=forgotten_topics)
def test_the_leader_kafka_python_and_kio_read_our_request(
    fetch: ReplicaFetch, topics: Asked, forgotten: Forgotten
) -> None:
    frame = memoryview(encode_replica_fetch(77, fetch, topics, forgotten))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header = parse_request_header(frame, 4, len(frame))
    assert (header.api_key, header.api_version, header.correlation_id) == (1, VERSION, 77)
    assert header.client_id == "broker-4-fetcher"
    ours = parse_fetch(frame, header.body_start, len(frame), VERSION)
    assert (ours.replica_id, ours.replica_epoch) == (fetch.broker_id, fetch.broker_epoch)
    assert (ours.session_id, ours.session_epoch) == (fetch.session_id, fetch.session_epoch)
    assert (ours.max_wait_ms, ours.min_bytes, ours.max_bytes) == (fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes)
    assert ours.topics == [FetchTopic(None, topic_id, asked) for topic_id, asked in topics.items()]
    assert {each.topic_id: list(each.partitions) for each in ours.forgotten} == forgotten
    body = bytes(frame[header.body_start :])
    theirs = KafkaRequest.decode(body, version=VERSION)
    assert (theirs.replica_state.replica_id, theirs.replica_state.replica_epoch) == (
        fetch.broker_id,
        fetch.broker_epoch,
    )
    assert [
        (topic.topic_id.bytes, [(each.partition, each.fetch_offset) for each in topic.partitions])
        for topic in theirs.topics
    ] == [(topic_id, [(each.partition, each.fetch_offset) for each in asked]) for topic_id, asked in topics.items()]
    _, size = entity_reader(importlib.import_module(f"kio.schema.fetch.v{VERSION}.request").FetchRequest)(body, 0)
    assert size == len(body)


content = MemoryFile(bytes(range(256)) * 8)
slices = st.none() | st.builds(
    lambda position, length: FileSlice(content, position, length), st.integers(0, 999), st.integers(1, 999)
)
results = st.builds(
    FetchResult, int32s, st.integers(-1, 119), int64s, int64s, int64s, slices, st.none() | st.tuples(int32s, int64s)
)


@settings(max_examples=size(33, 1_000))
@given(
    answers=st.lists(st.tuples(topic_ids, st.lists(results, max_size=4)), max_size=3),
    session_id=int32s,
    error=st.integers(-1, 119),
)
def test_a_follower_reads_our_response_in_place(answers: Answers, session_id: int, error: int) -> None:
    topics = [(FetchTopic(None, topic_id, []), results) for topic_id, results in answers]
    frame = memoryview(joined(encode_fetch_response(77, VERSION, topics, session_id, error)))[4:]
    response = parse_replica_fetch_response(frame)
    assert (response.correlation_id, response.error, response.session_id) == (77, error, session_id)
    assert [topic_id for topic_id, _ in response.topics] == [topic_id for topic_id, _ in answers]
    for (_, got), (_, wanted) in zip(response.topics, answers, strict=True):
        for partition, result in zip(got, wanted, strict=True):
            assert (partition.partition, partition.error) == (result.partition, result.error)
            assert partition.high_watermark == result.high_watermark
            assert partition.last_stable_offset == result.last_stable_offset
            assert partition.log_start_offset == result.log_start_offset
            assert bytes(partition.records) == (joined([result.records]) if result.records else b"")
            assert partition.records.obj is frame.obj
            assert partition.diverging_epoch == result.diverging_epoch
            assert partition.current_leader is None


def kafka_response() -> bytes:
    """Return a response with everything that a leader may send, and more."""
    topic = KafkaResponse.FetchableTopicResponse
    data = topic.PartitionData
    partition = data(
        partition_index=3,
        error_code=74,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        diverging_epoch=data.EpochEndOffset(epoch=4, end_offset=400),
        current_leader=data.LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
        aborted_transactions=[data.AbortedTransaction(producer_id=1, first_offset=2)] * 2,
        records=b"records",
    )
    response = KafkaResponse(
        session_id=5,
        responses=[topic(topic_id=UUID(int=7), partitions=[partition] * 2)],
        node_endpoints=[KafkaResponse.NodeEndpoint(node_id=2, host="two", port=9092, rack=None)],
    )
    return bytes(response.encode(version=VERSION))


def test_the_diverging_epoch_and_the_current_leader_are_parsed_among_unknown_fields() -> None:
    response = parse_replica_fetch_response(memoryview((9).to_bytes(4) + b"\0" + kafka_response()))
    (topic_id, partitions), *others = response.topics
    assert (topic_id, others) == (UUID(int=7).bytes, [])
    for each in partitions:
        assert each.diverging_epoch == (4, 400)
        assert each.current_leader == (2, 9)
        assert bytes(each.records) == b"records"


def test_a_response_cut_anywhere_is_malformed() -> None:
    frame = (9).to_bytes(4) + b"\0" + kafka_response()
    for end in range(len(frame)):
        with pytest.raises(MalformedResponse):
            parse_replica_fetch_response(memoryview(frame)[:end])


@settings(max_examples=size(60, 2_000))
@given(data=st.data())
def test_a_response_with_changed_bytes_is_parsed_or_malformed(data: st.DataObject) -> None:
    frame = bytearray((9).to_bytes(4) + b"\0" + kafka_response())
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    try:
        response = parse_replica_fetch_response(memoryview(frame))
    except MalformedResponse:
        return
    assert sum(len(partitions) for _, partitions in response.topics) * 30 <= len(frame)
