"""The error responses for a request that is refused, or for refused elements of its array, such as topics.

They are made in steps, because a request may have very many elements.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from barnabas_broker.wire import schema
from barnabas_broker.wire.framing import ELEMENT_BYTES
from barnabas_broker.wire.messages import message_class, struct_class
from barnabas_core.errors import ErrorCode
from barnabas_core.loop_turns import STEP_ELEMENTS, InSteps, flat_in_steps

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
            each for each in struct.fields if each.is_array and each.struct is not None and self._tells(each.struct)
        ]

    def _tells(self, struct: schema.Struct) -> bool:
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
