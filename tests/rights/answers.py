"""Responses as one line of text: all fields that are neither empty nor default, without those that differ by server."""

from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from barnabas_broker.wire import schema

REFUSALS: Final = frozenset({29, 30, 31, 53})
_CODES: Final = ("error_code", "partition_error_code")
_LEFT_OUT: Final = frozenset({"throttle_time_ms", "error_message"})
_OF_A_SERVER: Final = frozenset(
    (
        "host",
        "port",
        "cluster_id",
        "controller_id",
        "producer_id",
        "broker_id",
        "node_id",
        "leader_id",
        "leader_epoch",
        "replica_nodes",
        "isr_nodes",
        "rack",
    )
)
"""Fields whose values differ between servers; only their presence is compared."""


def text_of(answer: Any, version: int, ids: Mapping[UUID, str]) -> str:
    """Return the response as text, with topics' names in place of their ids."""
    return _struct(schema.message(type(answer).__name__).struct, answer, version, ids) or "nothing"


def codes_in(value: Any) -> set[int]:
    """Return all error codes in a response."""
    if isinstance(value, list):
        return {code for each in value for code in codes_in(each)}
    if not hasattr(value, "__struct_fields__"):
        return set()
    own = {getattr(value, each) for each in _CODES if hasattr(value, each)}
    return own | {code for each in value.__struct_fields__ for code in codes_in(getattr(value, each))}


def _struct(struct: schema.Struct, value: Any, version: int, ids: Mapping[UUID, str]) -> str:
    parts = []
    for field in struct.fields:
        if field.versions.hold(version) and field.name not in _LEFT_OUT:
            text = _field(field, getattr(value, field.name), version, ids)
            if text:
                parts.append(f"{field.name}={text}")
    return " ".join(parts)


def _field(field: schema.Field, value: Any, version: int, ids: Mapping[UUID, str]) -> str:
    if value in (field.default, None, [], ""):
        return ""
    if field.name in _OF_A_SERVER:
        return str(value) if isinstance(value, int) and value < 0 else "+"
    if isinstance(value, list):
        return f"[{', '.join(sorted(_one(field, each, version, ids) for each in value))}]"
    return _one(field, value, version, ids)


def _one(field: schema.Field, value: Any, version: int, ids: Mapping[UUID, str]) -> str:
    if field.struct is not None:
        return f"({_struct(field.struct, value, version, ids)})"
    if isinstance(value, UUID):
        return ids.get(value, "an id")
    if isinstance(value, (set, frozenset)):
        return str(sorted(map(int, value)))
    return str(value)
