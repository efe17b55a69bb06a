"""Any bytes are decoded or malformed: no other exception is raised, and no memory out of proportion is taken."""

import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from message_samples import CODEC_APIS, our_message, sample_tree

from barnabas_broker.wire import schema
from barnabas_broker.wire.encoder import decode_in_steps, decode_request, encode_in_steps, encode_response, encoder
from barnabas_broker.wire.framing import (
    ELEMENTS_MAX,
    NAMES_MAX,
    PARTITIONS_MAX,
    ApiSpec,
    MalformedRequest,
    encode_unsigned_varint,
)
from barnabas_core.loop_turns import at_once
from harness.soak import size

REQUESTS = [(spec, version) for spec in CODEC_APIS for version in range(spec.min_version, spec.max_version + 1)]
every_request = pytest.mark.parametrize(
    ("spec", "version"), REQUESTS, ids=lambda each: getattr(each, "name", f"v{each}")
)
METADATA = next(spec for spec in CODEC_APIS if spec.name == "Metadata")
MEGABYTE = 1 << 20


def sample(spec: ApiSpec, version: int) -> bytes:
    """A request with every field set."""
    name = f"{spec.name}Request"
    struct_ = schema.message(name).struct
    out = bytearray()
    encoder(name, version)(out, our_message(struct_, sample_tree(struct_, version)))
    return bytes(out)


def decoded_or_malformed(spec: ApiSpec, version: int, body: bytes) -> Any:
    try:
        return decode_request(spec.key, version, memoryview(body))
    except MalformedRequest:
        return None


def bytes_taken(spec: ApiSpec, version: int, body: bytes) -> int:
    """Return the most memory that decoding took at a time, beyond the body."""
    decoded_or_malformed(spec, version, b"")  # Objects that are made once are not counted.
    tracemalloc.start()
    try:
        decoded_or_malformed(spec, version, body)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every_request
def test_a_request_cut_anywhere_is_malformed(spec: ApiSpec, version: int) -> None:
    body = sample(spec, version)
    assert decoded_or_malformed(spec, version, body) is not None
    assert [end for end in range(len(body)) if decoded_or_malformed(spec, version, body[:end]) is not None] == []


@every_request
def test_bytes_after_a_request_are_ignored(spec: ApiSpec, version: int) -> None:
    body = sample(spec, version)
    assert decoded_or_malformed(spec, version, body + b"\0\0\0") == decoded_or_malformed(spec, version, body)


@every_request
@settings(max_examples=size(8, 250))
@given(data=st.data())
def test_a_request_with_changed_bytes_is_decoded_or_malformed(spec: ApiSpec, version: int, data: st.DataObject) -> None:
    body = bytearray(sample(spec, version))
    if not body:
        return
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
    decoded_or_malformed(spec, version, bytes(body))


@every_request
@settings(max_examples=size(8, 250))
@given(junk=st.binary(max_size=120))
def test_random_bytes_are_decoded_or_malformed(spec: ApiSpec, version: int, junk: bytes) -> None:
    decoded_or_malformed(spec, version, junk)


@every_request
def test_huge_counts_and_lengths_take_little_memory(spec: ApiSpec, version: int) -> None:
    for pattern in (b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x07"):
        for start in range(0, 24, 3):
            assert bytes_taken(spec, version, sample(spec, version)[:start] + pattern * 8) < MEGABYTE


def test_an_array_of_more_elements_than_bytes_is_malformed() -> None:
    for body in (b"\x7f\xff\xff\xff", b"\0\0\0\5\0\1a"):
        with pytest.raises(MalformedRequest, match="elements"):
            decode_request(METADATA.key, 1, memoryview(body))


def test_more_elements_than_any_client_sends_are_malformed_before_they_are_made() -> None:
    body = encode_unsigned_varint(PARTITIONS_MAX + 2) + b"\x01\0" * (PARTITIONS_MAX + 1) + b"\1\0\0\0"
    with pytest.raises(MalformedRequest, match=r"MetadataRequest v9: topics declares 50001 elements.* 50000 elements"):
        decode_request(METADATA.key, 9, memoryview(body))
    assert bytes_taken(METADATA, 9, body) < MEGABYTE


def test_the_elements_of_nested_arrays_are_counted_together() -> None:
    partitions = b"\0\0\0\1" * (PARTITIONS_MAX // 2)
    topic = b"\0\1t" + struct.pack(">i", PARTITIONS_MAX // 2) + partitions
    with pytest.raises(MalformedRequest, match="50000"):
        decode_request(9, 1, memoryview(b"\0\1g" + b"\0\0\0\2" + topic * 2))


def test_many_tagged_fields_are_skipped_without_copying_the_request() -> None:
    """Copying the rest of the request at each of them would take minutes."""
    count = PARTITIONS_MAX // 2  # The tagged fields are counted, too.
    topics = encode_unsigned_varint(count + 1) + b"\x02t\x01\x09\x01x" * count
    request = decode_request(METADATA.key, 9, memoryview(topics + b"\1\0\0\0"))
    assert len(request.topics) == count


def test_a_request_for_groups_has_fewer_elements_than_one_for_partitions() -> None:
    body = struct.pack(">i", NAMES_MAX + 1) + b"\0\1g" * (NAMES_MAX + 1)
    with pytest.raises(
        MalformedRequest, match=r"DescribeGroupsRequest v0: groups declares 10001 elements.* 10000 elem"
    ):
        decode_request(15, 0, memoryview(body))


@every_request
def test_a_request_is_decoded_in_steps_to_the_same_message(spec: ApiSpec, version: int) -> None:
    body = memoryview(sample(spec, version))
    assert at_once(decode_in_steps(spec.key, version, body, [])) == decode_request(spec.key, version, body)
    if body:
        with pytest.raises(MalformedRequest):
            at_once(decode_in_steps(spec.key, version, body[:-1], []))


@every_request
def test_a_response_is_encoded_in_steps_to_the_same_bytes(spec: ApiSpec, version: int) -> None:
    struct_ = schema.message(f"{spec.name}Response").struct
    response = our_message(struct_, sample_tree(struct_, version))
    assert at_once(encode_in_steps(response, version, 7)) == encode_response(response, version, 7)


def test_more_tagged_fields_than_any_client_sends_are_malformed() -> None:
    body = b"\2a\2b" + encode_unsigned_varint(ELEMENTS_MAX + 1) + b"\x09\0" * (ELEMENTS_MAX + 1)
    with pytest.raises(MalformedRequest, match="tagged fields"):
        decode_request(18, 3, memoryview(body))


@pytest.mark.parametrize(
    ("key", "version", "body", "complaint"),
    [
        (12, 0, b"\xff\xff" + b"\0\0\0\1" + b"\0\1m", "group_id must not be null"),
        (12, 4, b"\0" + b"\0\0\0\1" + b"\2m\0\0", "group_id must not be null"),
        (3, 0, b"\xff\xff\xff\xff", "topics must not be null"),
        (12, 0, b"\0\2\xc3\x28" + b"\0\0\0\1" + b"\0\1m", "utf-8"),
        (12, 4, encode_unsigned_varint(40_001) + b"a" * 40_000, "has 40000 bytes; at most 32767 are allowed"),
        (12, 4, b"\x80" * 100, "a varint has more than 5 bytes"),
        (18, 3, b"\2a\2b\1\0\5ab", "5 bytes are needed"),
        (18, 3, b"\2a\2b\xff\xff\xff\xff\x0f", "4294967295 elements"),
        (18, 3, b"\2a\2b\3\0\0", "ApiVersionsRequest v3"),
    ],
)
def test_the_error_of_a_malformed_request_gives_the_reason(key: int, version: int, body: bytes, complaint: str) -> None:
    with pytest.raises(MalformedRequest, match=complaint):
        decode_request(key, version, memoryview(body))
