"""Uuids as Kafka writes them."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_core.kafka_uuid import from_text, random_uuid, to_text


@given(st.uuids())
def test_text_and_uuid_are_each_others_inverse(uuid: UUID) -> None:
    text = to_text(uuid)
    assert len(text) == 22
    assert from_text(text) == uuid


def test_the_text_is_kafkas() -> None:
    # Uuid.METADATA_TOPIC_ID, which is 1.
    assert to_text(UUID(int=1)) == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "short", "AAAAAAAAAAAAAAAAAAAAAQAA"])
def test_other_text_is_no_uuid(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_a_new_uuid_never_looks_like_an_option() -> None:
    bits = random.Random(1).getrandbits
    assert not any(to_text(random_uuid(bits)).startswith("-") for _ in range(10_000))
