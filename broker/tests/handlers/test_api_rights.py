"""Every API follows the table of rights: a request without a right is refused, and its handler does not run."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from barnabas_broker.handlers.channel import Client, RequestContext
from barnabas_broker.handlers.guard import API_RIGHTS, Need, guarded
from barnabas_broker.security.authorizer import Audit, Authorizer
from barnabas_broker.wire import schema
from barnabas_broker.wire.encoder import encode_response
from barnabas_broker.wire.framing import API_SPECS
from barnabas_broker.wire.messages import message_class, struct_class
from barnabas_core.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPattern,
    PatternType,
    Permission,
    ResourceType,
)
from harness.manual_clock import ManualClock

CLIENT = Client("PLAINTEXT", "10.0.0.7:50123", "a", "User:alice")
NAME = "seen"


class Cell(NamedTuple):
    """A version of an API, and the missing right."""

    api_key: int
    version: int
    need: Need

    def __str__(self) -> str:
        kind = self.need.resource_type.name
        return f"{API_SPECS[self.api_key].name} v{self.version} without {self.need.operation.name} {kind}"


def cells() -> Iterator[Cell]:
    for api_key, row in API_RIGHTS.items():
        spec = API_SPECS[api_key]
        for version in range(spec.min_version, spec.max_version + 1):
            for need in row.needs:
                if need.first_version <= version <= need.last_version:
                    yield Cell(api_key, version, need)


def filled(struct: schema.Struct, name: str, when: dict[str, int]) -> Any:
    """Return a message with one element in each array, and the same text in all fields of strings."""
    values: dict[str, object] = {}
    for field in struct.fields:
        one: object = filled(field.struct, name, when) if field.struct is not None else plain(field.kind, name)
        values[field.name] = [one] if field.is_array else one
    return struct_class(struct)(**values | {key: value for key, value in when.items() if key in values})


def plain(kind: str, name: str) -> object:
    return {"string": name, "bool": False, "bytes": b"", "records": b"", "uuid": UUID(int=0), "float64": 0.0}.get(
        kind, 1
    )


def with_rights(granted: dict[tuple[ResourceType, str], set[AclOperation]]) -> Any:
    authorizer = Authorizer((), allow_if_none=False, audit=Audit(ManualClock()))
    authorizer.replace(
        {
            AclPattern(kind, name, PatternType.LITERAL): [
                AclEntry("User:alice", "10.0.0.7", operation, Permission.ALLOW) for operation in operations
            ]
            for (kind, name), operations in granted.items()
        }
    )
    return SimpleNamespace(authorizer=authorizer, image=SimpleNamespace(topic_name=lambda _: None))


def all_but(cell: Cell) -> dict[tuple[ResourceType, str], set[AclOperation]]:
    granted: dict[tuple[ResourceType, str], set[AclOperation]] = {}
    for need in API_RIGHTS[cell.api_key].needs:
        if (need.operation, need.resource_type) != (cell.need.operation, cell.need.resource_type):
            name = CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else NAME
            granted.setdefault((need.resource_type, name), set()).add(need.operation)
    return granted


def asked(cell: Cell, granted: dict[tuple[ResourceType, str], set[AclOperation]]) -> tuple[Any, list[Any]]:
    """Return the response, and the requests that the handler received."""
    name = API_SPECS[cell.api_key].name
    got: list[Any] = []

    def handler(environment: object, context: object, request: Any) -> Any:
        got.append(request)
        return message_class(f"{name}Response")()

    when = {} if cell.need.when is None else {cell.need.when[0]: cell.need.when[1][0]}
    request = filled(schema.message(f"{name}Request").struct, NAME, when)
    context = RequestContext(cell.api_key, cell.version, CLIENT)
    answer = guarded(lambda _: handler)(cell.api_key)(with_rights(granted), context, request)
    return answer, got


def errors_in(value: Any) -> set[int]:
    """Return all error codes of a response and of its elements."""
    if isinstance(value, list):
        return {code for each in value for code in errors_in(each)}
    if not hasattr(value, "__struct_fields__"):
        return set()
    found = {getattr(value, each) for each in ("error_code", "partition_error_code") if hasattr(value, each)}
    return found | {code for each in value.__struct_fields__ for code in errors_in(getattr(value, each))}


def messages_in(value: Any) -> set[str | None]:
    """All error messages beside an error code, in elements of an answer too."""
    if isinstance(value, list):
        return {message for each in value for message in messages_in(each)}
    if not hasattr(value, "__struct_fields__"):
        return set()
    is_refused = getattr(value, "error_code", 0) and hasattr(value, "error_message")
    found = {value.error_message} if is_refused else set()
    return found | {message for each in value.__struct_fields__ for message in messages_in(getattr(value, each))}


def test_every_handler_has_a_row_in_the_table_of_rights() -> None:
    assert API_RIGHTS.keys() == API_SPECS.keys()


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_a_request_without_a_right_is_refused_before_its_handler_runs(cell: Cell) -> None:
    answer, got = asked(cell, all_but(cell))
    assert not got
    names = {each.name for each in schema.message(f"{API_SPECS[cell.api_key].name}Response").struct.fields}
    if cell.api_key != 35 or cell.version >= 3:  # DescribeLogDirs before version 3 has no field for the error.
        assert cell.need.code in errors_in(answer), names
    assert messages_in(answer) <= {None}  # Java's clients show an empty text as it is.
    assert len(encode_response(answer, cell.version, 7)) > 8


@pytest.mark.parametrize("cell", list(cells()), ids=str)
def test_a_request_with_all_rights_reaches_its_handler(cell: Cell) -> None:
    granted = all_but(cell)
    name = CLUSTER_NAME if cell.need.resource_type is ResourceType.CLUSTER else NAME
    granted.setdefault((cell.need.resource_type, name), set()).add(cell.need.operation)
    answer, got = asked(cell, granted)
    assert len(got) == 1
    assert not errors_in(answer) - {0}


def test_the_handler_gets_a_request_without_its_refused_topics() -> None:
    cell = Cell(2, 7, API_RIGHTS[2].needs[0])
    environment = with_rights({(ResourceType.TOPIC, NAME): {AclOperation.READ}})
    request = filled(schema.message("ListOffsetsRequest").struct, NAME, {})
    request.topics += filled(schema.message("ListOffsetsRequest").struct, "hidden", {}).topics
    got: list[Any] = []

    def handler(environment: object, context: object, request: Any) -> Any:
        got.append([topic.name for topic in request.topics])
        response = message_class("ListOffsetsResponse")
        return response(topics=[response.ListOffsetsTopicResponse(name=NAME)])

    context = RequestContext(cell.api_key, cell.version, CLIENT)
    answer: Any = guarded(lambda _: handler)(2)(environment, context, request)
    assert got == [[NAME]]
    assert [topic.name for topic in answer.topics] == [NAME, "hidden"]
    (partition,) = answer.topics[1].partitions
    assert (partition.partition_index, partition.error_code, partition.offset) == (1, 29, -1)
