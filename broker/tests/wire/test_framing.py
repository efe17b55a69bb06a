"""The request header, against kafka-python's own encoder and against bytes that are no header at all."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.wire.framing import (
    API_SPECS,
    ApiSpec,
    MalformedRequest,
    RequestHeader,
    encode_unsigned_varint,
    parse_request_header,
    read_unsigned_varint,
    skip_tagged_fields,
)

VERSIONS = [(spec, version) for spec in API_SPECS.values() for version in range(spec.min_version, spec.max_version + 1)]


def header_bytes(spec: ApiSpec, version: int, client_id: str | None, tags: bytes = b"\0") -> bytes:
    encoded = (client_id or "").encode()
    length = -1 if client_id is None else len(encoded)
    head = struct.pack(">hhih", spec.key, version, 77, length) + encoded
    return head + tags if spec.is_flexible(version) else head


@pytest.mark.parametrize(("spec", "version"), VERSIONS, ids=lambda value: getattr(value, "name", f"v{value}"))
@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "café"])
def test_a_header_is_parsed_and_the_body_starts_after_it(spec: ApiSpec, version: int, client_id: str | None) -> None:
    encoded = b"junk" + header_bytes(spec, version, client_id)
    header = parse_request_header(memoryview(encoded + b"body"), 4, len(encoded) + 4)
    assert header == RequestHeader(spec.key, version, 77, client_id, len(encoded))


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    tags = bytes([2, 0, 3]) + b"abc" + bytes([99, 1]) + b"z"
    encoded = header_bytes(API_SPECS[0], 9, "c", tags)
    assert parse_request_header(memoryview(encoded), 0, len(encoded)).body_start == len(encoded)


def test_the_header_of_an_apiversions_request_of_a_future_version_is_parsed() -> None:
    encoded = struct.pack(">hhih", 18, 99, 5, -1) + b"\0"
    assert parse_request_header(memoryview(encoded), 0, len(encoded)).api_version == 99


def test_an_api_key_that_this_broker_lacks_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="the API 999"):
        parse_request_header(memoryview(struct.pack(">hhih", 999, 0, 0, -1)), 0, 10)


@pytest.mark.parametrize(("key", "version"), [(0, 3), (0, 9), (18, 3), (60, 0)])
def test_a_header_cut_anywhere_is_malformed_whatever_bytes_follow(key: int, version: int) -> None:
    encoded = header_bytes(API_SPECS[key], version, "client", bytes([1, 7, 2]) + b"xy")
    for end in range(len(encoded)):
        with pytest.raises(MalformedRequest):
            parse_request_header(memoryview(encoded), 0, end)


@given(st.binary(max_size=64), st.sampled_from(VERSIONS))
def test_random_bytes_after_a_valid_key_and_version_are_parsed_or_malformed(
    tail: bytes, api: tuple[ApiSpec, int]
) -> None:
    encoded = struct.pack(">hhi", api[0].key, api[1], 1) + tail
    try:
        header = parse_request_header(memoryview(encoded), 0, len(encoded))
    except MalformedRequest:
        return
    assert header.body_start <= len(encoded)


@given(st.integers(0, 2**32 - 1))
def test_an_encoded_varint_is_decoded_to_the_same_value(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert read_unsigned_varint(encoded + b"\xff", 0) == (value, len(encoded))


def test_a_varint_longer_than_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="5 bytes"):
        read_unsigned_varint(b"\x80" * 1000, 0)


def test_a_count_of_four_billion_tagged_fields_in_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedRequest):
        skip_tagged_fields(b"\xff\xff\xff\xff\x0f", 0)


def test_produce_is_advertised_from_version_0_and_served_from_3() -> None:
    produce = API_SPECS[0]
    assert produce.advertised_min_version == 0
    assert not produce.supports(2)
    assert all(spec.advertised_min_version == spec.min_version for spec in API_SPECS.values() if spec is not produce)


def test_more_tagged_fields_than_any_client_sends_are_malformed() -> None:
    assert skip_tagged_fields(b"\x10" + b"\x09\0" * 16, 0) == 33
    with pytest.raises(MalformedRequest, match="16 are allowed"):
        skip_tagged_fields(b"\x11" + b"\x09\0" * 17, 0)
