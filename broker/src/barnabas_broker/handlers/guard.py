"""Check rights before a handler runs, by the table of the rights that each API needs.

A request is refused as a whole, or only the topics, groups or other resources in it that the client may not access. A
handler itself checks the rights that `ApiRights.in_handler` describes, because it lists resources, or because the
rights depend on more than the request. Refusals are made in steps, because a request may have very many elements.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from typing import Any, Final
from uuid import UUID

import msgspec

from barnabas_broker.handlers.channel import MessageHandler, RequestContext, rights_of
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.security.authorizer import Rights
from barnabas_broker.wire import schema
from barnabas_broker.wire.framing import API_SPECS, ELEMENT_BYTES
from barnabas_broker.wire.messages import message_class, struct_class
from barnabas_core.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, at_once, flat_in_steps

_CODES: Final = frozenset({"error_code", "partition_error_code"})
_USUAL_SOURCES: Final = {"partitions": "partition_indexes"}
_OTHER_NAMES: Final = {"topic_name": "name", "user": "name"}
_PLAIN: Final = (str, int)
_MESSAGE: Final = "error_message"


class Refusals:
    """The error responses of one API, for refused requests, or for refused elements of an array in a request.

    `answers` maps the name of a response array to the name of the request array that it answers. `fields` has the
    values, by field name, that a response must have instead of the protocol's defaults. With `names_each`, a response
    has the error code at the top level and in each element of its arrays.
    """

    def __init__(self, api: str, answers: Mapping[str, str], fields: Mapping[str, object], *, names_each: bool) -> None:
        self._response = message_class(f"{api}Response")
        self._struct = schema.message(f"{api}Response").struct
        self._answers = answers
        self._fields = fields
        self._names_each = names_each

    def of_all(self, request: object, code: ErrorCode, version: int) -> InSteps[Any]:
        """Return the response that refuses a whole request, in steps.

        If the response has no error field, each of its elements has the error.
        """
        own = [each for each in self._struct.fields if each.name == "error_code" and each.versions.hold(version)]
        values: dict[str, object] = dict.fromkeys((each.name for each in own), code)
        for each in self._arrays(self._struct) if not own or self._names_each else ():
            found = yield from self._list(each, request, code)
            if found:
                values[each.name] = found
        return self._response(**values, **self._own_fields(self._struct))

    def of_elements(self, array: str, refused: Iterable[tuple[object, ErrorCode]]) -> InSteps[tuple[str, list[Any]]]:
        """Return the response array that answers the request's array `array`, in steps: its name, and its elements.

        The response array has one element for each pair of request element and error code in `refused`.
        """
        field = next(each for each in self._arrays(self._struct) if self._source(each) == array)
        return field.name, (yield from self._elements(field, refused))

    def empty(self) -> Any:
        """Return a response whose arrays are empty."""
        return self._response()

    def _list(self, field: schema.Field, source: object, code: ErrorCode) -> InSteps[list[Any]]:
        found: list[object] = []
        for path in self._source(field).split("+"):
            found += yield from _at(source, path)
        return (yield from self._elements(field, ((each, code) for each in found)))

    def _elements(self, field: schema.Field, refused: Iterable[tuple[object, ErrorCode]]) -> InSteps[list[Any]]:
        assert field.struct is not None, "the elements of the array must be structs"
        elements = []
        for number, (source, code) in enumerate(refused):
            elements.append((yield from self._element(field.struct, source, code)))
            if number % STEP_ELEMENTS == 0:
                yield STEP_ELEMENTS * ELEMENT_BYTES
        return elements

    def _element(self, struct: schema.Struct, source: object, code: ErrorCode) -> InSteps[Any]:
        """Return the response element that refuses an element of the request.

        If the response element has no error field, its inner elements have the error.
        """
        values: dict[str, object] = {each.name: code for each in struct.fields if each.name in _CODES}
        arrays = [] if values else self._arrays(struct)
        is_plain = isinstance(source, _PLAIN)
        for field in struct.fields:
            if field.name in values or field.name == _MESSAGE:
                continue
            if field in arrays:
                values[field.name] = yield from self._list(field, source, code)
            elif is_plain and not field.is_array and field.kind == ("string" if isinstance(source, str) else "int32"):
                values[field.name], is_plain = source, False
            elif not field.is_array and hasattr(source, name := _OTHER_NAMES.get(field.name, field.name)):
                values[field.name] = getattr(source, name)
        return struct_class(struct)(**values | self._own_fields(struct))

    def _own_fields(self, struct: schema.Struct) -> dict[str, object]:
        """Return the fields with values other than the protocol's defaults.

        Messages are null: clients then show their own text for the error code. Many defaults are empty texts.
        """
        values = {**self._fields, _MESSAGE: None}
        return {each.name: values[each.name] for each in struct.fields if each.name in values}

    def _arrays(self, struct: schema.Struct) -> list[schema.Field]:
        """Return the array fields of `struct` whose elements have an error code, directly or in a nested array."""
        return [
            each for each in struct.fields if each.is_array and each.struct is not None and self._has_codes(each.struct)
        ]

    def _has_codes(self, struct: schema.Struct) -> bool:
        return any(each.name in _CODES for each in struct.fields) or bool(self._arrays(struct))

    def _source(self, field: schema.Field) -> str:
        return self._answers.get(field.name, field.name)


def _at(source: object, path: str) -> InSteps[Iterable[object]]:
    """Return the elements of the array at `path`, such as `dirs.topics`, in steps."""
    elements: Iterable[object] = (source,)
    for name in path.split("."):
        elements = yield from flat_in_steps(elements, partial(_array, name))
    return elements


def _array(name: str, source: object) -> Iterable[object]:
    return getattr(source, name, None) or getattr(source, _USUAL_SOURCES.get(name, name), None) or ()


_O = AclOperation
_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_ID: Final = ResourceType.TRANSACTIONAL_ID
LATEST: Final = 1 << 15


class Need(msgspec.Struct, frozen=True):
    """A right that a request needs."""

    operation: AclOperation
    resource_type: ResourceType
    field: str = ""
    """The path to the resource names in the request; empty for the cluster, which has no name.

    `topics.name` means the field `name` of each element of `topics`. `groups[]` means that the elements of `groups` are
    the names. `resources.` means that the right on the cluster is checked for each element of `resources`.
    """
    first_version: int = 0
    last_version: int = LATEST
    when: tuple[str, tuple[int, ...]] | None = None
    """The name of a field, and the values of the field for which the right is needed; None if it is always needed.

    The field belongs to the request, or to the elements of the request's array `array`.
    """
    or_on_cluster: AclOperation | None = None
    """The operation on the cluster that suffices instead of `operation` on the resource; None if no operation does."""

    @property
    def code(self) -> ErrorCode:
        """The error code for a client without the right."""
        return CODES[self.resource_type]

    @property
    def array(self) -> str:
        """The array of the request whose elements are checked one by one; "" if the request is checked as a whole."""
        return self.field.removesuffix("[]").partition(".")[0] if self.field.endswith("[]") or "." in self.field else ""


CODES: Final[Mapping[ResourceType, ErrorCode]] = {
    _TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    _ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class ApiRights(msgspec.Struct, frozen=True):
    """The rights that one API needs."""

    needs: tuple[Need, ...] = ()
    answers: Mapping[str, str] = {}
    """The name of a response array, mapped to the name of the request array that it answers; equal names are left out.

    `outer.inner` is the array `inner` in each element of `outer`. `a+b` is all elements of `a`, then all elements of
    `b`.
    """
    names_each: bool = False
    """True if an error response has the error code at the top level and in each element of its arrays, as in Kafka."""
    refused: Mapping[str, object] = {}
    """The values, by field name, that an error response must have instead of the protocol's defaults."""
    in_handler: str = ""
    """A description of the rights that the handler itself checks."""


def _cluster(operation: AclOperation, or_on_cluster: AclOperation | None = None) -> Need:
    return Need(operation, _CLUSTER, or_on_cluster=or_on_cluster)


_CONFIG_KINDS: Final = ((_TOPIC, (2,)), (_GROUP, (32,)), (_CLUSTER, (4, 8, 16)))
"""The ACL resource types, each with the codes of the config resource types that its ACLs protect.

The codes are those of DescribeConfigs: 2 is TOPIC, 4 BROKER, 8 BROKER_LOGGER, 16 CLIENT_METRICS, and 32 GROUP.
"""


def _configs(operation: AclOperation) -> tuple[Need, ...]:
    return tuple(
        Need(
            operation,
            kind,
            "resources." if kind is _CLUSTER else "resources.resource_name",
            when=("resource_type", values),
        )
        for kind, values in _CONFIG_KINDS
    )


API_RIGHTS: Final[Mapping[int, ApiRights]] = {
    0: ApiRights(
        in_handler="The client needs Write on each topic (otherwise error code 29), and Write on the transactional id "
        "of transactional batches (otherwise error code 53). The batches that the client may write are appended."
    ),
    1: ApiRights(
        in_handler="A consumer needs Read on each topic (otherwise error code 29). A follower needs ClusterAction on "
        "the cluster (otherwise error code 31)."
    ),
    2: ApiRights((Need(_O.DESCRIBE, _TOPIC, "topics.name"),)),
    3: ApiRights(
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29). A request for all "
        "topics returns the topics that the client may describe. To create a topic, the client needs Create on the "
        "cluster or on the topic (otherwise error code 29). The client needs no right to get the list of brokers."
    ),
    8: ApiRights((Need(_O.READ, _GROUP, "group_id"), Need(_O.READ, _TOPIC, "topics.name"))),
    9: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "group_id", last_version=7),
            Need(_O.DESCRIBE, _GROUP, "groups.group_id", first_version=8),
        ),
        refused={"committed_offset": -1},
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29 and offset -1). A "
        "request for all topics returns the topics that the client may describe.",
    ),
    10: ApiRights(
        (
            Need(_O.DESCRIBE, _GROUP, "key", last_version=3, when=("key_type", (0,))),
            Need(_O.DESCRIBE, _ID, "key", last_version=3, when=("key_type", (1,))),
            Need(_O.CLUSTER_ACTION, _CLUSTER, first_version=6, when=("key_type", (2,))),
            Need(_O.DESCRIBE, _GROUP, "coordinator_keys[]", first_version=4, when=("key_type", (0,))),
            Need(_O.DESCRIBE, _ID, "coordinator_keys[]", first_version=4, when=("key_type", (1,))),
        ),
        {"coordinators": "coordinator_keys"},
        refused={"node_id": -1, "port": -1},
    ),
    11: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    12: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    13: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    14: ApiRights((Need(_O.READ, _GROUP, "group_id"),)),
    15: ApiRights((Need(_O.DESCRIBE, _GROUP, "groups[]"),)),
    16: ApiRights(
        in_handler="The response lists the groups that the client may describe, and all groups if the "
        "client may describe the cluster."
    ),
    17: ApiRights(),
    18: ApiRights(),
    19: ApiRights(
        (Need(_O.CREATE, _TOPIC, "topics.name", or_on_cluster=_O.CREATE),),
        refused={"num_partitions": -1, "replication_factor": -1},
        in_handler="A client without DescribeConfigs on a topic can create the topic, but the response has error code "
        "29 in topic_config_error_code, no configs, and -1 for num_partitions and replication_factor.",
    ),
    20: ApiRights(
        in_handler="The client needs Delete on each topic or on the cluster (otherwise error code 29). If the "
        "client deletes by topic id and is refused, the response names the topic only if the client may describe it."
    ),
    21: ApiRights((Need(_O.DELETE, _TOPIC, "topics.name"),), refused={"low_watermark": -1}),
    22: ApiRights(
        in_handler="A client with a transactional id needs Write on the id (otherwise error code 53). Any other client "
        "needs IdempotentWrite on the cluster, or Write on any topic (otherwise error code 31)."
    ),
    23: ApiRights(
        (Need(_O.DESCRIBE, _TOPIC, "topics.topic", or_on_cluster=_O.CLUSTER_ACTION),), refused={"leader_epoch": -1}
    ),
    24: ApiRights(
        (
            Need(_O.WRITE, _ID, "v3_and_below_transactional_id", last_version=3),
            Need(_O.CLUSTER_ACTION, _CLUSTER, first_version=4),
        ),
        {"results_by_topic_v3_and_below": "v3_and_below_topics", "results_by_partition": "partitions"},
        in_handler="Up to v3 the client needs Write on each topic (otherwise error code 29). If one topic is refused, "
        "no partition is added, and the other partitions have error code 55.",
    ),
    25: ApiRights((Need(_O.WRITE, _ID, "transactional_id"), Need(_O.READ, _GROUP, "group_id"))),
    26: ApiRights((Need(_O.WRITE, _ID, "transactional_id"),)),
    27: ApiRights((_cluster(_O.CLUSTER_ACTION, or_on_cluster=_O.ALTER),)),
    28: ApiRights(
        (
            Need(_O.WRITE, _ID, "transactional_id"),
            Need(_O.READ, _GROUP, "group_id"),
            Need(_O.READ, _TOPIC, "topics.name"),
        )
    ),
    29: ApiRights((_cluster(_O.DESCRIBE),)),
    30: ApiRights((_cluster(_O.ALTER),), {"results": "creations"}),
    31: ApiRights((_cluster(_O.ALTER),), {"filter_results": "filters"}),
    32: ApiRights(_configs(_O.DESCRIBE_CONFIGS), {"results": "resources"}),
    33: ApiRights(_configs(_O.ALTER_CONFIGS), {"responses": "resources"}),
    34: ApiRights((_cluster(_O.ALTER),), {"results": "dirs.topics"}),
    35: ApiRights((_cluster(_O.DESCRIBE),)),
    36: ApiRights(),
    37: ApiRights((Need(_O.ALTER, _TOPIC, "topics.name"),), {"results": "topics"}),
    38: ApiRights(),
    39: ApiRights(),
    40: ApiRights(),
    41: ApiRights(),
    42: ApiRights((Need(_O.DELETE, _GROUP, "groups_names[]"),), {"results": "groups_names"}),
    43: ApiRights(
        (_cluster(_O.ALTER),),
        {"replica_election_results": "topic_partitions", "partition_result": "partitions"},
        names_each=True,
    ),
    44: ApiRights(_configs(_O.ALTER_CONFIGS), {"responses": "resources"}),
    45: ApiRights((_cluster(_O.ALTER),), {"responses": "topics"}, names_each=True),
    46: ApiRights((_cluster(_O.DESCRIBE),)),
    47: ApiRights((Need(_O.DELETE, _GROUP, "group_id"), Need(_O.READ, _TOPIC, "topics.name"))),
    48: ApiRights((_cluster(_O.DESCRIBE_CONFIGS),)),
    49: ApiRights(
        in_handler="The client needs AlterConfigs on the cluster (otherwise each entry of the response has error "
        "code 31)."
    ),
    50: ApiRights((_cluster(_O.DESCRIBE),)),
    51: ApiRights((_cluster(_O.ALTER),), {"results": "deletions+upsertions"}),
    55: ApiRights((_cluster(_O.DESCRIBE),)),
    57: ApiRights((_cluster(_O.ALTER),)),
    60: ApiRights(),
    61: ApiRights((Need(_O.READ, _TOPIC, "topics.name"),)),
    64: ApiRights((_cluster(_O.ALTER),)),
    65: ApiRights(
        (Need(_O.DESCRIBE, _ID, "transactional_ids[]"),),
        {"transaction_states": "transactional_ids"},
        in_handler="The response lists only the topics that the client may describe.",
    ),
    66: ApiRights(in_handler="The response lists only the transactional ids that the client may describe."),
    68: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and Describe on each topic that it "
        "names (otherwise error code 29). A regular expression matches only topics that the client may describe."
    ),
    69: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic to which a "
        "member of the group subscribes (otherwise the group has error code 29)."
    ),
    74: ApiRights((_cluster(_O.DESCRIBE_CONFIGS),)),
    75: ApiRights(
        in_handler="The client needs Describe on each topic that it names (otherwise error code 29 and a zero topic "
        "id). A request for all topics returns the topics that the client may describe."
    ),
    76: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and Describe on each topic that it "
        "names (otherwise error code 29)."
    ),
    77: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic to which a "
        "member of the group subscribes (otherwise the group has error code 29)."
    ),
    78: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    79: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    **dict.fromkeys(
        (83, 84, 85, 86, 87),
        ApiRights((_cluster(_O.CLUSTER_ACTION),), {"results": "topics", "partitions": "partitions"}),
    ),
    90: ApiRights(
        in_handler="The client needs Describe on each group (otherwise error code 30), and on each topic that it names "
        "(otherwise its partitions have error code 29). A request for all topics returns those that it may describe."
    ),
    91: ApiRights(
        in_handler="The client needs Read on the group (otherwise error code 30), and on each topic (otherwise its "
        "partitions have error code 29)."
    ),
    92: ApiRights(
        in_handler="The client needs Delete on the group (otherwise error code 30), and Read on each topic (otherwise "
        "error code 29)."
    ),
}
"""The rights that a client needs for each API, by API key."""

CLUSTER_ACTIONS_SINCE: Final[Mapping[int, int]] = {
    key: need.first_version
    for key, row in API_RIGHTS.items()
    for need in row.needs
    if need.operation is _O.CLUSTER_ACTION and need.when is None
}
"""The versions, by API key, from which on brokers send a request to each other; clients have no right to it."""


def guarded(message_handler: Callable[[int], MessageHandler]) -> Callable[[int], MessageHandler]:
    """Return a function that takes an API key, and returns a handler that checks the client's rights first."""

    @functools.cache
    def guarded_handler(api_key: int) -> MessageHandler:
        handler, row = message_handler(api_key), API_RIGHTS[api_key]
        return _Guard(api_key, row, handler) if row.needs else handler

    return guarded_handler


class _Checked(msgspec.Struct, frozen=True):
    """The parts of a response that the guard makes."""

    response: Any = None
    """The response to a request whose handler is not called; None for other requests."""
    name: str = ""
    refused: Sequence[Any] = ()
    """The elements to add to the response's array `name`."""


class _Guard:
    def __init__(self, api_key: int, row: ApiRights, handler: MessageHandler) -> None:
        self._row = row
        self._handler = handler
        self._refusals = Refusals(API_SPECS[api_key].name, row.answers, row.refused, names_each=row.names_each)

    def __call__(self, environment: HandlerEnvironment, context: RequestContext, request: Any) -> Any | Awaitable[Any]:
        """Refuse the request, or the elements of its array (such as topics) for which the client lacks a right.

        The handler then gets the request with the remaining elements only.
        """
        rights = rights_of(environment, context.client)
        if rights.is_super:
            return self._handler(environment, context, request)
        needs = [each for each in self._row.needs if each.first_version <= context.api_version <= each.last_version]
        of_request = (each for each in needs if not each.array)
        code = _code(rights, of_request, request, request, environment)
        of_elements = [each for each in needs if each.array]
        if code:
            steps = self._refuse(request, code, context.api_version)
        elif of_elements:
            steps = self._check(environment, rights, of_elements, request)
        else:
            return self._handler(environment, context, request)
        if context.turn is None:
            return self._answer(environment, context, request, at_once(steps))
        return self._answer_later(environment, context, request, context.turn.run(steps))

    def _refuse(self, request: Any, code: ErrorCode, version: int) -> InSteps[_Checked]:
        return _Checked((yield from self._refusals.of_all(request, code, version)))

    async def _answer_later(
        self, environment: HandlerEnvironment, context: RequestContext, request: Any, checking: Awaitable[_Checked]
    ) -> Any:
        response = self._answer(environment, context, request, await checking)
        return await response if isawaitable(response) else response

    def _answer(
        self, environment: HandlerEnvironment, context: RequestContext, request: Any, checked: _Checked
    ) -> Any | Awaitable[Any]:
        response = checked.response
        if response is None:
            response = self._handler(environment, context, request)
        return with_refused(response, checked.name, checked.refused) if checked.refused else response

    def _check(
        self, environment: HandlerEnvironment, rights: Rights, needs: Sequence[Need], request: Any
    ) -> InSteps[_Checked]:
        """Return what is refused, in steps, and leave only the allowed elements in the request."""
        array, allowed, refused = needs[0].array, [], []
        for number, element in enumerate(getattr(request, array) or ()):
            code = _code(rights, needs, request, element, environment)
            if code:
                refused.append((element, code))
            else:
                allowed.append(element)
            if number % STEP_ELEMENTS == 0:
                yield 0
        if not refused:
            return _Checked()
        name, answers = yield from self._refusals.of_elements(array, refused)
        setattr(request, array, allowed)
        return _Checked(None if allowed else self._refusals.empty(), name, answers)


def with_refused(response: Any | Awaitable[Any], name: str, refused: Sequence[Any]) -> Any | Awaitable[Any]:
    """Return the response, or an awaitable of it, with refused elements at the end of its array `name`."""
    return _later(response, name, refused) if isawaitable(response) else _with(response, name, refused)


async def _later(response: Awaitable[Any], name: str, refused: Sequence[Any]) -> Any:
    return _with(await response, name, refused)


def _with(response: Any, name: str, refused: Sequence[Any]) -> Any:
    setattr(response, name, [*getattr(response, name), *refused])
    return response


def _code(
    rights: Rights, needs: Iterable[Need], request: Any, element: Any, environment: HandlerEnvironment
) -> ErrorCode:
    """Return the error code for an element such as a topic; NONE if the client has all rights that it needs."""
    return next((each.code for each in needs if not _has(rights, each, request, element, environment)), ErrorCode.NONE)


def _has(rights: Rights, need: Need, request: Any, element: Any, environment: HandlerEnvironment) -> bool:
    if need.when is not None:
        field, values = need.when
        if getattr(element, field, None) not in values and getattr(request, field, None) not in values:
            return True
    name = _resource(need, element, environment)
    if name is None:
        return True
    instead = need.or_on_cluster
    if instead is not None and rights.may_see(instead, ResourceType.CLUSTER):
        return True
    return rights.may(need.operation, need.resource_type, name)


def _resource(need: Need, element: Any, environment: HandlerEnvironment) -> str | None:
    """Return the name of the resource to check; None for an unknown topic id, which the handler refuses itself."""
    if need.resource_type is ResourceType.CLUSTER:
        return CLUSTER_NAME
    if need.field.endswith("[]"):
        return str(element)
    name = getattr(element, need.field.rpartition(".")[2])
    topic_id = getattr(element, "topic_id", None)
    if not name and isinstance(topic_id, UUID):
        return environment.image.topic_name(topic_id)
    return str(name or "")
