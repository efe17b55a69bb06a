"""The codec against kafka-python, both ways for every message and version, and against kio for those that it has."""

import importlib
import io
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kio.serial import entity_reader, entity_writer
from message_samples import (
    CODEC_MESSAGES,
    SMALL_VALUES,
    VALUES,
    kafka_class,
    kafka_message,
    message_trees,
    our_message,
    sample_tree,
)

from barnabas_broker.wire import schema
from barnabas_broker.wire.decoder import decoder
from barnabas_broker.wire.encoder import (
    ERROR_MESSAGE,
    SHOWN_CHARS_MAX,
    UnencodableMessage,
    api_versions_response,
    decode_request,
    encode_in_steps,
    encode_response,
    encode_unsupported_api_versions,
    encoder,
)
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.messages import message_class
from barnabas_core.loop_turns import at_once
from harness.soak import size

few = settings(max_examples=size(3, 60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
SHORT = "x" + 16_383 * "é"
"""The longest error message of these letters that a string can hold."""
WITH_ERROR_MESSAGE = [
    each for each in CODEC_MESSAGES if ERROR_MESSAGE in str(sample_tree(schema.message(each[0]).struct, each[1]))
]
every_message = pytest.mark.parametrize(("name", "version"), CODEC_MESSAGES)


def encoded(name: str, version: int, message: Any) -> bytes:
    out = bytearray()
    encoder(name, version)(out, message)
    return bytes(out)


@every_message
@few
@given(data=st.data())
def test_kafka_python_writes_and_reads_the_same_bytes(name: str, version: int, data: st.DataObject) -> None:
    struct = schema.message(name).struct
    tree = data.draw(message_trees(name, version, VALUES))
    ours = encoded(name, version, our_message(struct, tree))
    theirs = kafka_message(struct, tree)
    assert ours == bytes(ApiMessage.encode(theirs, version=version))
    decoded = decoder(name, version)(memoryview(ours))
    assert decoded == our_message(struct, tree)
    assert encoded(name, version, from_kafka_python(name, version, ours)) == ours


def from_kafka_python(name: str, version: int, data: bytes) -> Any:
    """Decode with kafka-python's own method; that of our subclass would use our codec."""
    decode: Any = ApiMessage.decode
    return decode.__func__(kafka_class(name), data, version=version)


def kio_class(name: str, version: int) -> Any:
    named = re.fullmatch(r"(\w+)(Request|Response)", name)
    assert named is not None
    api, direction = named.groups()
    package = re.sub(r"(?<!^)(?=[A-Z])", "_", api).lower()
    try:
        module = importlib.import_module(f"kio.schema.{package}.v{version}.{direction.lower()}")
    except ModuleNotFoundError:
        pytest.skip("kio does not have it")
    if name == "AlterUserScramCredentialsRequest":
        pytest.skip("kio refuses tags that it does not know, such as that of our own field")
    return getattr(module, name)


@every_message
@few
@given(data=st.data())
def test_kio_reads_our_bytes_and_writes_the_same(name: str, version: int, data: st.DataObject) -> None:
    kio = kio_class(name, version)
    tree = data.draw(message_trees(name, version, SMALL_VALUES))
    ours = encoded(name, version, our_message(schema.message(name).struct, tree))
    entity, size = entity_reader(kio)(ours, 0)
    assert size == len(ours)
    written = io.BytesIO()
    entity_writer(kio)(written, entity)
    assert written.getvalue() == ours


@every_message
def test_fields_that_a_version_lacks_have_their_defaults(name: str, version: int) -> None:
    struct = schema.message(name).struct
    message = decoder(name, version)(
        memoryview(encoded(name, version, our_message(struct, sample_tree(struct, version))))
    )
    absent = [field for field in struct.fields if not field.is_in_line(version) and not field.is_tagged(version)]
    assert all(getattr(message, field.name) == field.default for field in absent)


def test_default_lists_are_not_shared_between_messages() -> None:
    body = memoryview(b"\xff\xff\xff\xff")
    first, second = decode_request(3, 1, body), decode_request(3, 1, body)
    assert first.topics is None
    first, second = message_class("MetadataResponse")(), message_class("MetadataResponse")()
    first.topics.append(1)
    assert second.topics == []


def test_defaults_are_those_of_the_definition() -> None:
    request = decode_request(3, 0, memoryview(bytes(4)))
    assert request.topics == []
    assert request.allow_auto_topic_creation is True
    assert message_class("FetchRequest")().max_bytes == 0x7FFFFFFF
    assert message_class("OffsetCommitRequest")().retention_time_ms == -1


def test_a_response_frame_has_a_size_and_a_header_with_tagged_fields_if_flexible() -> None:
    heartbeat = message_class("HeartbeatResponse")
    frame = encode_response(heartbeat(error_code=27), 3, 513)
    assert frame == bytes([0, 0, 0, 10, 0, 0, 2, 1, 0, 0, 0, 0, 0, 27])
    frame = encode_response(heartbeat(error_code=27), 4, 513)
    assert frame == bytes([0, 0, 0, 12, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 27, 0])


@pytest.mark.parametrize("version", range(5))
def test_the_header_of_apiversions_is_never_flexible(version: int) -> None:
    frame = encode_response(api_versions_response(0), version, 9)
    decoded = kafka_class("ApiVersionsResponse").decode(bytes(frame), version=version, header=True, framed=True)
    assert {key.api_key: (key.min_version, key.max_version) for key in decoded.api_keys} == {
        spec.key: (spec.advertised_min_version, spec.max_version) for spec in API_SPECS.values()
    }


def test_an_unsupported_apiversions_is_answered_in_v0_with_error_35_and_the_keys() -> None:
    frame = bytes(encode_unsupported_api_versions(9))
    decoded = kafka_class("ApiVersionsResponse").decode(frame, version=0, header=True, framed=True)
    assert decoded.header.correlation_id == 9
    assert decoded.error_code == 35
    assert len(decoded.api_keys) == len(API_SPECS)
    assert len(frame) == 4 + 4 + 2 + 4 + 6 * len(API_SPECS)


def test_a_tagged_field_with_its_default_is_not_sent() -> None:
    response = message_class("ApiVersionsResponse")
    assert encoded("ApiVersionsResponse", 3, response()) == b"\0\0\x01\0\0\0\0\0"
    assert encoded(
        "ApiVersionsResponse", 3, response(finalized_features_epoch=0)
    ) == b"\0\0\x01\0\0\0\0\x01\x01\x08" + bytes(8)


def test_unknown_tags_are_ignored() -> None:
    tags = bytes([2, 9, 3]) + b"abc" + bytes([100, 0])
    request = decode_request(18, 3, memoryview(b"\x02a\x02b" + tags))
    assert (request.client_software_name, request.client_software_version) == ("a", "b")


def test_bytes_after_a_request_are_ignored() -> None:
    as_librdkafka_2_16_asks_for_all_topics = bytes.fromhex("00 00 00 00 01 00 00")
    request = decode_request(3, 13, memoryview(as_librdkafka_2_16_asks_for_all_topics))
    assert request.topics is None


def test_a_field_whose_value_does_not_fit_its_type_is_named_in_the_error() -> None:
    heartbeat = message_class("HeartbeatResponse")
    with pytest.raises(UnencodableMessage, match="error_code"):
        encoded("HeartbeatResponse", 1, heartbeat(error_code=2**20))
    groups = message_class("ListGroupsResponse")
    message = groups(groups=[groups.ListedGroup(group_id=None)])
    with pytest.raises(UnencodableMessage, match=r"ListedGroup v1 cannot be encoded: .*group_id=None"):
        encoded("ListGroupsResponse", 1, message)


@pytest.mark.parametrize(("name", "version"), WITH_ERROR_MESSAGE)
def test_a_client_can_read_a_response_with_a_very_long_error_message(name: str, version: int) -> None:
    """The message is cut to what a string holds, between two characters."""
    struct = schema.message(name).struct
    tree, cut = (_with_error_message(sample_tree(struct, version), message) for message in ("x" + 99_999 * "é", SHORT))
    assert encoded(name, version, our_message(struct, tree)) == encoded(name, version, our_message(struct, cut))
    assert SHORT.encode() in bytes(ApiMessage.encode(kafka_message(struct, cut), version=version))


def _with_error_message(tree: Any, message: str) -> Any:
    if isinstance(tree, list):
        return [_with_error_message(each, message) for each in tree]
    if not isinstance(tree, dict):
        return tree
    return {key: message if key == ERROR_MESSAGE else _with_error_message(each, message) for key, each in tree.items()}


@pytest.mark.parametrize("version", [4, 7])
def test_the_error_about_a_string_that_is_too_long_is_short_in_all_versions(version: int) -> None:
    topics = message_class("CreateTopicsResponse")
    topic = topics.CreatableTopicResult(name="x" * 40_000, error_message=None)
    for encode in (encode_response, lambda *message: at_once(encode_in_steps(*message))):
        with pytest.raises(UnencodableMessage, match="name has 40000 bytes; a string has at most 32767") as error:
            encode(topics(topics=[topic]), version, 0)
        assert len(str(error.value)) < 2 * SHOWN_CHARS_MAX


def test_importing_an_unknown_message_fails() -> None:
    with pytest.raises(ImportError):
        from barnabas_broker.wire.messages import NoSuchRequest  # type: ignore[attr-defined]  # noqa: F401
