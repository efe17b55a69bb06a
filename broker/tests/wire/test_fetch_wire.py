"""Fetch requests from kafka-python's encoder, responses into its decoder, all versions; kio reads the same."""

import importlib
import re
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaRequest
from kafka.protocol.consumer import FetchResponse as KafkaResponse
from kio.serial import entity_reader
from leader_samples import endpoints, expected_endpoints, leaders
from message_samples import MemoryFile

from barnabas_broker.wire.fetch import (
    FetchPartition,
    FetchResult,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_response,
    parse_fetch,
    parse_fetch_in_steps,
)
from barnabas_broker.wire.framing import HANDLED_BYTES, LED_MAX, FileSlice, MalformedRequest, Part
from barnabas_core.loop_turns import STEP_ELEMENTS, at_once
from harness.soak import size

VERSIONS = range(4, 19)
every_version = pytest.mark.parametrize("version", VERSIONS)
KafkaTopic = KafkaRequest.FetchTopic

names = st.text(min_size=1, max_size=60)
topic_ids = st.uuids().filter(lambda value: value.int)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
partitions = st.builds(FetchPartition, int32s, int32s, int64s, int32s, int64s, int32s)
asked_topics = st.lists(st.tuples(names, topic_ids, st.lists(partitions, max_size=4)), max_size=3)
forgotten_topics = st.lists(st.tuples(names, topic_ids, st.lists(int32s, max_size=3)), max_size=2)


Asked = Sequence[tuple[str, uuid.UUID, Sequence[FetchPartition]]]
Answers = Sequence[tuple[str, uuid.UUID, list[FetchResult]]]
Forgotten = Sequence[tuple[str, uuid.UUID, Sequence[int]]]


def sent(parts: Sequence[Part]) -> bytes:
    """Return the bytes that the socket would get."""
    return b"".join(
        part.file.read_at(part.position, part.length) if isinstance(part, FileSlice) else bytes(part) for part in parts
    )


def encoded_request(version: int, asked: Asked, forgotten: Forgotten, **fields: Any) -> bytes:
    values: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 1,
        "session_id": 9,
        "session_epoch": 3,
        "rack_id": "rack",
        "replica_id": -1,
    } | fields
    return bytes(
        KafkaRequest(
            topics=[
                KafkaTopic(topic=name, topic_id=topic_id, partitions=[kafka_partition(each) for each in partitions])
                for name, topic_id, partitions in asked
            ],
            forgotten_topics_data=[
                KafkaRequest.ForgottenTopic(topic=name, topic_id=topic_id, partitions=list(indexes))
                for name, topic_id, indexes in forgotten
            ],
            **values,
        ).encode(version=version)
    )


def kafka_partition(partition: FetchPartition) -> Any:
    return KafkaTopic.FetchPartition(
        partition=partition.partition,
        current_leader_epoch=partition.current_leader_epoch,
        fetch_offset=partition.fetch_offset,
        last_fetched_epoch=partition.last_fetched_epoch,
        log_start_offset=partition.log_start_offset,
        partition_max_bytes=partition.max_bytes,
    )


def in_version(partition: FetchPartition, version: int) -> FetchPartition:
    return FetchPartition(
        partition.partition,
        partition.current_leader_epoch if version >= 9 else -1,
        partition.fetch_offset,
        partition.last_fetched_epoch if version >= 12 else -1,
        partition.log_start_offset if version >= 5 else -1,
        partition.max_bytes,
    )


@every_version
@settings(max_examples=size(15, 1_000))
@given(asked=asked_topics, forgotten=forgotten_topics, before=st.binary(max_size=9), behind=st.binary(max_size=9))
def test_a_request_is_parsed(version: int, asked: Asked, forgotten: Forgotten, before: bytes, behind: bytes) -> None:
    body = encoded_request(version, asked, forgotten)
    request = parse_fetch(memoryview(before + body + behind), len(before), len(before) + len(body), version)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level) == (500, 1, 1 << 20, 1)
    assert (request.session_id, request.session_epoch) == ((9, 3) if version >= 7 else (0, -1))
    assert request.replica_id == -1
    assert request.topics == [
        FetchTopic(
            name if version < 13 else None,
            topic_id.bytes if version >= 13 else None,
            [in_version(partition, version) for partition in partitions],
        )
        for name, topic_id, partitions in asked
    ]
    assert request.forgotten == [
        ForgottenTopic(name if version < 13 else None, topic_id.bytes if version >= 13 else None, tuple(indexes))
        for name, topic_id, indexes in (forgotten if version >= 7 else [])
    ]


several_steps = st.lists(partitions, max_size=2 * STEP_ELEMENTS + 1)
many_topics = st.lists(st.tuples(names, topic_ids, several_steps), max_size=4)


@every_version
@settings(max_examples=size(10, 1_000))
@given(asked=many_topics, forgotten=forgotten_topics, cut=st.integers(0, 30), replica_id=st.integers(-1, 3))
def test_a_request_parsed_in_steps_is_that_parsed_at_once(
    version: int, asked: Asked, forgotten: Forgotten, cut: int, replica_id: int
) -> None:
    body = encoded_request(version, asked, forgotten, replica_id=replica_id)
    where = memoryview(body), 0, len(body) - (cut if cut < 20 else 0), version
    kept: list[Any] = []
    try:
        request = parse_fetch(*where)
    except MalformedRequest as malformed:
        with pytest.raises(MalformedRequest, match=f"^{re.escape(str(malformed))}$"):
            at_once(parse_fetch_in_steps(*where, kept))
        return
    assert at_once(parse_fetch_in_steps(*where, kept)) == request
    partition_count = sum(len(topic.partitions) for topic in request.topics)
    assert len(kept) == partition_count + len(request.topics) + len(request.forgotten)


def test_a_step_of_parsing_has_few_elements() -> None:
    asked = [("flights", uuid.UUID(int=7), [FetchPartition(0, 0, 0, 0, 0, 0)] * count) for count in (0, 100, 3, 1, 1)]
    body = encoded_request(17, asked * 20, [("flights", uuid.UUID(int=7), [1])] * 100)
    steps = list(parse_fetch_in_steps(memoryview(body), 0, len(body), 17, []))
    assert max(steps) <= 2 * STEP_ELEMENTS * HANDLED_BYTES
    assert sum(steps) >= (110 * 20 + 96) * HANDLED_BYTES


@every_version
def test_the_id_of_a_follower_and_since_v15_its_epoch_are_parsed(version: int) -> None:
    state = KafkaRequest.ReplicaState(replica_id=4, replica_epoch=77)
    fields = {"replica_state": state, "cluster_id": "c" * 200} if version >= 15 else {"replica_id": 4}
    body = encoded_request(version, [], [], **fields)
    request = parse_fetch(memoryview(body), 0, len(body), version)
    assert (request.replica_id, request.replica_epoch) == (4, 77 if version >= 15 else -1)


def test_tagged_fields_of_a_followers_partition_are_skipped() -> None:
    partition = KafkaTopic.FetchPartition(
        partition=3, fetch_offset=8, replica_directory_id=uuid.UUID(int=5), high_watermark=12
    )
    request = KafkaRequest(topics=[KafkaTopic(topic_id=uuid.UUID(int=9), partitions=[partition] * 2)])
    body = bytes(request.encode(version=18))
    parsed = parse_fetch(memoryview(body), 0, len(body), 18)
    assert [(each.partition, each.fetch_offset) for each in parsed.topics[0].partitions] == [(3, 8), (3, 8)]


segment = MemoryFile(bytes(range(256)) * 8)
slices = st.none() | st.builds(
    lambda position, length: FileSlice(segment, position, length), st.integers(0, 999), st.integers(1, 999)
)
results = st.builds(
    FetchResult,
    int32s,
    st.integers(-1, 119),
    int64s,
    int64s,
    int64s,
    slices,
    st.none() | st.tuples(int32s, int64s),
    st.none(),
    st.none() | st.lists(st.tuples(int64s, int64s), max_size=3),
) | st.builds(FetchResult, int32s, st.integers(1, 119), int64s, int64s, int64s, st.none(), st.none(), leaders)


@every_version
@settings(max_examples=size(15, 1_000))
@given(answers=st.lists(st.tuples(names, topic_ids, st.lists(results, max_size=4)), max_size=3))
def test_kafka_python_and_kio_read_our_responses(version: int, answers: Answers) -> None:
    topics = [
        (FetchTopic(name if version < 13 else None, topic_id.bytes if version >= 13 else None, []), results)
        for name, topic_id, results in answers
    ]
    frame = sent(encode_fetch_response(77, version, topics))
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    decoded = KafkaResponse.decode(frame, version=version, header=True, framed=True)
    assert decoded.header.correlation_id == 77
    assert (decoded.error_code, decoded.session_id, decoded.throttle_time_ms) == (0, 0, 0)
    assert [(topic.topic, topic.topic_id and topic.topic_id.bytes) for topic in decoded.responses] == [
        (topic.name or "", topic.topic_id) for topic, _ in topics
    ]
    got = [partition for topic in decoded.responses for partition in topic.partitions]
    wanted = [result for _, results in topics for result in results]
    for partition, result in zip(got, wanted, strict=True):
        assert_is_result(partition, result, version)
    named = [result.leader for result in wanted] if version >= 16 else []
    assert endpoints(decoded.node_endpoints) == expected_endpoints(named)
    body = frame[9 if version >= 12 else 8 :]
    _, size = entity_reader(importlib.import_module(f"kio.schema.fetch.v{version}.response").FetchResponse)(body, 0)
    assert size == len(body)


def assert_is_result(partition: Any, result: FetchResult, version: int) -> None:
    assert partition.partition_index == result.partition
    assert partition.error_code == result.error
    assert partition.high_watermark == result.high_watermark
    assert partition.last_stable_offset == result.last_stable_offset
    assert partition.log_start_offset == (result.log_start_offset if version >= 5 else -1)
    aborted = partition.aborted_transactions
    assert (None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted]) == result.aborted
    assert partition.preferred_read_replica == -1
    assert bytes(partition.records) == (sent([result.records]) if result.records else b"")
    if version >= 12 and result.diverging_epoch is not None:
        assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == result.diverging_epoch
    else:
        assert partition.diverging_epoch is None
    if version >= 16 and result.leader is not None:
        named = partition.current_leader.leader_id, partition.current_leader.leader_epoch
        assert named == (result.leader.leader_id, result.leader.leader_epoch)
    else:
        assert partition.current_leader is None


def test_records_are_sent_from_their_file_between_the_encoded_parts() -> None:
    topic = FetchTopic("t", None, [])
    records = FileSlice(segment, 100, 50)
    parts = encode_fetch_response(
        1, 11, [(topic, [FetchResult(0, 0, 9, 9, 0, records), FetchResult(1, 0, 9, 9, 0, records)])]
    )
    assert [part is records for part in parts] == [False, True, False, True]


@every_version
def test_a_request_cut_anywhere_is_malformed_whatever_bytes_follow(version: int) -> None:
    asked = [("topic", uuid.UUID(int=5), [FetchPartition(1, 2, 3, 4, 5, 6)] * 3)]
    fields = {"replica_state": KafkaRequest.ReplicaState(replica_id=4, replica_epoch=77)} if version >= 15 else {}
    body = encoded_request(version, asked, [("gone", uuid.UUID(int=6), [1, 2])], **fields)
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            parse_fetch(memoryview(body), 0, end, version)


@every_version
@settings(max_examples=size(40, 1_000))
@given(data=st.data())
def test_a_request_with_changed_bytes_is_parsed_or_malformed(version: int, data: st.DataObject) -> None:
    asked = [("topic", uuid.UUID(int=5), [FetchPartition(1, 2, 3, 4, 5, 6)] * 2)] * 2
    fields = {"replica_state": KafkaRequest.ReplicaState(replica_id=4, replica_epoch=77)} if version >= 15 else {}
    body = bytearray(encoded_request(version, asked, [("gone", uuid.UUID(int=6), [1, 2])], **fields))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    try:
        request = parse_fetch(memoryview(body + bytes(50)), 0, len(body), version)
    except MalformedRequest:
        return
    assert sum(len(topic.partitions) for topic in request.topics) * 16 <= len(body)


@pytest.mark.parametrize("version", [4, 12])
def test_more_partitions_than_any_client_has_are_malformed(version: int) -> None:
    asked = [("t", uuid.UUID(int=1), [FetchPartition(1, 2, 3, 4, 5, 6)] * (LED_MAX // 2))]
    body = encoded_request(version, asked * 2, [])
    with pytest.raises(MalformedRequest, match=str(LED_MAX + 2)):
        parse_fetch(memoryview(body), 0, len(body), version)
