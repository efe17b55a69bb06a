"""The conversion of outcomes to the fields of responses, and of outcomes by partition to lists of topics."""

from collections.abc import Iterable, Mapping
from typing import TypedDict, TypeVar

from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps, in_steps
from barnabas_core.topic_partition import TopicPartition

Outcome = TypeVar("Outcome")


class ErrorFields(TypedDict):
    """The two error fields of an element in a response."""

    error_code: ErrorCode
    error_message: str | None


def by_topic(
    outcomes: Mapping[TopicPartition, Outcome],
) -> InSteps[Iterable[tuple[str, list[tuple[int, Outcome]]]]]:
    """Group outcomes by topic, in steps; topics and partitions keep the order of the request."""
    topics: dict[str, list[tuple[int, Outcome]]] = {}

    def add(each: tuple[TopicPartition, Outcome]) -> None:
        (topic, number), outcome = each
        topics.setdefault(topic, []).append((number, outcome))

    yield from in_steps(outcomes.items(), add)
    return topics.items()


def error_fields(error: ApiError | None) -> ErrorFields:
    """Return the error fields of an element in a response; `error` is None if the element has no error."""
    if error is None:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return {"error_code": error.code, "error_message": error.message}
