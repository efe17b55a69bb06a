"""The text of UUIDs in Kafka's format."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.kafka_uuid import from_text, random_uuid, to_text


@given(st.uuids())
def test_the_text_of_a_uuid_is_parsed_to_the_same_uuid(uuid: UUID) -> None:
    text = to_text(uuid)
    assert len(text) == 22
    assert from_text(text) == uuid


def test_the_text_of_a_uuid_equals_that_of_kafka() -> None:
    # The UUID is Uuid.METADATA_TOPIC_ID, which is 1.
    assert to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "short", "AAAAAAAAAAAAAAAAAAAAAQAA"])
def test_text_of_another_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_a_new_uuid_never_looks_like_an_option() -> None:
    bits = random.Random(1).getrandbits
    assert not any(to_text(random_uuid(bits)).startswith("-") for _ in range(10_000))
