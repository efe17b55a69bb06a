"""The regular expressions by which members of consumer groups subscribe to topics."""

from collections.abc import Iterable, Sequence

from barnabas_broker.coordinators.name_patterns import NamePattern
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import InSteps


def topic_pattern(text: str) -> NamePattern:
    """Compile the SubscribedTopicRegex of a heartbeat. ApiError says why it is not valid."""
    try:
        return NamePattern(text)
    except ValueError as error:
        message = f"SubscribedTopicRegex `{text[:256]}` is not a valid regular expression: {error}."
        raise ApiError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def resolve(texts: Iterable[str], topics: Sequence[str]) -> InSteps[dict[str, list[str]]]:
    """Return the topics that each expression matches, in steps of about a millisecond.

    An expression that is not valid matches nothing: an older version or Apache Kafka may have stored it.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        try:
            pattern = NamePattern(text)
        except ValueError:
            found[text] = []
        else:
            found[text] = yield from pattern.fitting(topics)
        yield 0
    return found
