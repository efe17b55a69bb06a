"""Produce requests from kafka-python's encoder, responses into its decoder, all versions; kio reads the same."""

import importlib
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest as KafkaRequest
from kafka.protocol.producer import ProduceResponse as KafkaResponse
from kio.serial import entity_reader
from leader_samples import endpoints, expected_endpoints, leaders

from barnabas_broker.wire.framing import NAMES_MAX, MalformedRequest, encode_unsigned_varint
from barnabas_broker.wire.produce import (
    ProduceRefusal,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
    encode_produce_response,
    parse_produce,
)
from harness.soak import size

VERSIONS = range(3, 14)
every_version = pytest.mark.parametrize("version", VERSIONS)
KafkaTopic = KafkaRequest.TopicProduceData

names = st.text(min_size=1, max_size=200)
topic_ids = st.uuids().filter(lambda value: value.int)
records = st.none() | st.binary(max_size=300)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
times_ms = st.just(-1) | st.integers(0, 2**41)
"""The times that kio accepts."""
topics = st.lists(st.tuples(names, topic_ids, st.lists(st.tuples(int32s, records), max_size=4)), max_size=3)
record_errors = st.lists(st.tuples(int32s, st.none() | st.text(max_size=200)), max_size=4).map(tuple)
refusals = st.builds(ProduceRefusal, st.none() | st.text(max_size=200), record_errors, leaders)
results = st.tuples(int32s, st.integers(-1, 119), int64s, times_ms, int64s, st.none() | refusals)


def encoded_request(version: int, transactional_id: str | None, asked: list[Any]) -> bytes:
    return bytes(
        KafkaRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                KafkaTopic(
                    name=name,
                    topic_id=topic_id,
                    partition_data=[
                        KafkaTopic.PartitionProduceData(index=index, records=batch) for index, batch in partitions
                    ],
                )
                for name, topic_id, partitions in asked
            ],
        ).encode(version=version)
    )


@every_version
@settings(max_examples=size(15, 1_000))
@given(transactional_id=st.none() | names, asked=topics, before=st.binary(max_size=9), behind=st.binary(max_size=9))
def test_a_request_is_parsed_to_positions_in_its_buffer(
    version: int, transactional_id: str | None, asked: list[Any], before: bytes, behind: bytes
) -> None:
    body = encoded_request(version, transactional_id, asked)
    buffer = memoryview(before + body + behind)
    request = parse_produce(buffer, len(before), len(before) + len(body), version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1500)
    assert [
        (
            topic.name,
            topic.topic_id,
            [(index, bytes(buffer[start:end])) for of, index, start, end in request.batches if of is topic],
        )
        for topic in request.topics
    ] == [
        (
            name if version < 13 else None,
            topic_id.bytes if version >= 13 else None,
            [(at, got or b"") for at, got in places],
        )
        for name, topic_id, places in asked
    ]


@every_version
@settings(max_examples=size(15, 1_000))
@given(answers=st.lists(st.tuples(names, topic_ids, st.lists(results, max_size=4)), max_size=3))
def test_kafka_python_and_kio_read_our_responses(version: int, answers: list[Any]) -> None:
    topics = [
        (
            ProduceTopic(
                name if version < 13 else None, topic_id.bytes if version >= 13 else None, partition_count=len(results)
            ),
            results,
        )
        for name, topic_id, results in answers
    ]
    everything = [result for _, results in topics for result in results]
    is_one = version >= 13 and len(topics) == 1 == len(everything)
    only = topics[0][0].topic_id if is_one else None
    request = ProduceRequest(-1, 1500, [topic for topic, _ in topics], [], only_topic_id=only)
    frame = bytes(encode_produce_response(77, version, request, everything))
    decoded = KafkaResponse.decode(frame, version=version, header=True, framed=True)
    assert decoded.header.correlation_id == 77
    assert decoded.throttle_time_ms == 0
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    assert [(topic.name, topic.topic_id and topic.topic_id.bytes) for topic in decoded.responses] == [
        (topic.name or "", topic.topic_id) for topic, _ in topics
    ]
    assert [seen(partition) for topic in decoded.responses for partition in topic.partition_responses] == [
        expected(result, version) for _, results in topics for result in results
    ]
    named = [result[-1].leader for _, results in topics for result in results if result[-1] is not None]
    assert endpoints(decoded.node_endpoints) == expected_endpoints(named if version >= 10 else [])
    body = frame[9 if version >= 9 else 8 :]
    _, size = entity_reader(importlib.import_module(f"kio.schema.produce.v{version}.response").ProduceResponse)(body, 0)
    assert size == len(body)


def seen(partition: object) -> tuple[object, ...]:
    fields = ("index", "error_code", "base_offset", "log_append_time_ms", "log_start_offset", "error_message")
    errors = tuple((each.batch_index, each.batch_index_error_message) for each in partition.record_errors or ())  # type: ignore[attr-defined]
    leader = partition.current_leader  # type: ignore[attr-defined]
    named = None if leader is None else (leader.leader_id, leader.leader_epoch)
    return (*(getattr(partition, name) for name in fields), errors, named)


def expected(result: ProduceResult, version: int) -> tuple[object, ...]:
    *head, log_start_offset, refusal = result
    message, errors, leader = refusal or (None, (), None)
    told = (message, errors) if version >= 8 else (None, ())
    named = None if leader is None or version < 10 else (leader.leader_id, leader.leader_epoch)
    return (*head, log_start_offset if version >= 5 else -1, *told, named)


def test_tagged_fields_anywhere_are_ignored() -> None:
    tags = b"\x01\x07\x02xy"
    body = b"\0\xff\xff\0\0\0\1" + b"\2" + b"\2t" + b"\2" + b"\0\0\0\5" + b"\4abc" + tags + tags + tags
    request = parse_produce(memoryview(body), 0, len(body), 9)
    assert [(index, body[start:end]) for _, index, start, end in request.batches] == [(5, b"abc")]


def test_bytes_after_a_request_are_ignored() -> None:
    body = encoded_request(7, None, [("t", uuid.UUID(int=1), [(0, b"abc")])])
    assert parse_produce(memoryview(body + b"\0\0\0"), 0, len(body) + 3, 7) == parse_produce(
        memoryview(body), 0, len(body), 7
    )


@every_version
def test_a_request_cut_anywhere_is_malformed_whatever_bytes_follow(version: int) -> None:
    body = encoded_request(version, "tx", [("topic", uuid.UUID(int=5), [(0, b"abc"), (1, None), (2, b"d" * 200)])])
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            parse_produce(memoryview(body), 0, end, version)


SPECIAL_BYTES = st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF])


@every_version
@settings(max_examples=size(40, 1_000))
@given(data=st.data())
def test_a_request_with_changed_bytes_is_malformed_or_has_batches_within_its_bytes(
    version: int, data: st.DataObject
) -> None:
    body = bytearray(encoded_request(version, "tx", [("topic", uuid.UUID(int=5), [(0, b"abc"), (1, None)])] * 2))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(SPECIAL_BYTES)
    try:
        request = parse_produce(memoryview(body + bytes(50)), 0, len(body), version)
    except MalformedRequest:
        return
    assert all(0 < start <= end <= len(body) for _, _, start, end in request.batches)


def test_a_name_of_negative_length_is_malformed() -> None:
    body = b"\xff\xff" + bytes(6) + b"\x7f\xff\xff\xff" + b"\xff\xfa" + bytes(40)
    with pytest.raises(MalformedRequest):
        parse_produce(memoryview(body), 0, len(body), 7)
    body = b"\xff\xff" + bytes(6) + b"\0\0\0\5" + b"\xff\xfa" + bytes(40)
    with pytest.raises(MalformedRequest, match="the length -6"):
        parse_produce(memoryview(body), 0, len(body), 7)


def test_more_partitions_than_any_client_has_are_malformed() -> None:
    partitions = b"\0\0\0\0\0\0\0\0"
    topic = b"\0\1t" + (NAMES_MAX // 2).to_bytes(4) + partitions * (NAMES_MAX // 2)
    body = b"\xff\xff\0\0\0\0\0\0" + b"\0\0\0\2" + topic + topic
    with pytest.raises(MalformedRequest, match="10002"):
        parse_produce(memoryview(body), 0, len(body), 7)
    topic = b"\2t" + encode_unsigned_varint(NAMES_MAX // 2 + 1) + b"\0\0\0\0\1\0" * (NAMES_MAX // 2) + b"\0"
    body = b"\0\0\0\0\0\0\0" + b"\3" + topic + topic + b"\0"
    with pytest.raises(MalformedRequest, match="10002"):
        parse_produce(memoryview(body), 0, len(body), 9)


@pytest.mark.parametrize("version", [7, 9])
def test_a_topic_without_a_name_is_malformed(version: int) -> None:
    body = b"\xff\xff" + bytes(6) + b"\0\0\0\1\xff\xff\0\0\0\0" if version == 7 else b"\0" + bytes(6) + b"\2\0\1\0\0"
    with pytest.raises(MalformedRequest, match="null"):
        parse_produce(memoryview(body), 0, len(body), version)
