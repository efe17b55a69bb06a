"""The message classes agree with the stub that the type checker reads."""

import re
from pathlib import Path
from typing import Any

import pytest
from message_samples import CODEC_APIS, kafka_class

from barnabas_broker.wire import messages, schema

STUB = Path(messages.__file__).with_suffix(".pyi")
TOLD = re.findall(r"^(?:from kafka\.\S+ import \w+ as|class) (\w+)", STUB.read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", TOLD)
def test_a_message_class_has_the_fields_and_nested_classes_of_its_stub(name: str) -> None:
    assert_same(schema.message(name).struct, getattr(messages, name), kafka_class(name))


def assert_same(struct: schema.Struct, ours: Any, theirs: Any) -> None:
    assert set(ours.__struct_fields__) == set(theirs.fields)
    for field in struct.fields:
        if field.struct is not None:
            assert_same(field.struct, getattr(ours, field.struct.name), getattr(theirs, field.struct.name))


def test_the_stub_has_every_message_that_handlers_see() -> None:
    served = {f"{spec.name}{direction}" for spec in CODEC_APIS for direction in ("Request", "Response")}
    kinds = ("ApiVersions", "DelegationToken", "ShareGroupState")
    by_name = {name for name in served if any(kind in name for kind in kinds)}
    assert served - set(TOLD) == by_name


KAFKA_PYTHONS_OWN = {"ListOffsetsRequest.replica_id", "CreatePartitionsRequest.assignments"}
"""The defaults that kafka-python changes for its own requests."""


@pytest.mark.parametrize("name", TOLD)
def test_defaults_are_those_of_kafka_python(name: str) -> None:
    ours, theirs = getattr(messages, name)(), kafka_class(name).fields
    for field in schema.message(name).struct.fields:
        if f"{name}.{field.name}" not in KAFKA_PYTHONS_OWN and (field.struct is None or field.is_array):
            assert getattr(ours, field.name) == theirs[field.name].default, field.name
