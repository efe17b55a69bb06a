"""Send planned changes of topics with the admin client: many topics in a request, and a result for each topic."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from kafka.admin import ConfigResource
from kafka.structs import TopicPartition

from barnabas_core import kafka_uuid
from barnabas_core.errors import ErrorCode
from barnabas_operator.planning.groups.group_checks import DEAD_LETTER_ENABLE, DeadLetterTopic
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    TopicStep,
)
from barnabas_operator.resources.topic import PARTITIONS_MAX

TOPICS_A_REQUEST_MAX: Final = 100  # A request with so many topics is answered within about a second.

_ALTER_ERROR: Final = re.compile(r"\[Error (-?\d+)\] \w+(?:: )?(.*)", re.DOTALL)


class StepRefused(Exception):
    """An error with which a broker refuses a change: Kafka's error code and message."""

    def __init__(self, code: int, message: str | None) -> None:
        self.code = code
        super().__init__(f"{error_name(code)} ({code})" + (f": {message}" if message else ""))


Answers = Iterator[tuple[str, StepRefused | None]]


def error_name(code: int) -> str:
    """Return Kafka's name of an error code."""
    return ErrorCode(code).name if code in set(ErrorCode) else "UNRECOGNIZED_ERROR"


def requests_of(steps: Sequence[TopicStep]) -> Iterator[list[TopicStep]]:
    """Split the steps into requests, each with a limited number of topics and of new partitions; yield each request."""
    request: list[TopicStep] = []
    partitions = 0
    for step in steps:
        added = len(step.assignments) if isinstance(step, CreateTopic | IncreasePartitions) else 0
        if request and (len(request) == TOPICS_A_REQUEST_MAX or partitions + added > PARTITIONS_MAX):
            yield request
            request, partitions = [], 0
        request.append(step)
        partitions += added
    if request:
        yield request


def send(client: Any, steps: Sequence[TopicStep]) -> dict[str, StepRefused | None]:
    """Send changes of one kind in one request, at most one for each topic.

    Return the error by topic; None if the broker accepted the change.
    """
    return dict(SENDERS[type(steps[0])](client, steps))


def _create(client: Any, steps: Sequence[CreateTopic]) -> Answers:
    topics = {
        step.topic: {"assignments": dict(enumerate(map(list, step.assignments))), "configs": dict(step.configs)}
        for step in steps
    }
    for answer in client.create_topics(topics, raise_errors=False)["topics"]:
        yield answer["name"], _refusal(answer["error_code"], answer["error_message"])


def _increase(client: Any, steps: Sequence[IncreasePartitions]) -> Answers:
    changes = {step.topic: {"count": step.count, "assignments": list(map(list, step.assignments))} for step in steps}
    for answer in client.create_partitions(changes, raise_errors=False).results:
        yield answer.name, _refusal(answer.error_code, answer.error_message)


def _alter(client: Any, steps: Sequence[AlterConfigs]) -> Answers:
    return alter_configs(client, "topic", {step.topic: step.changes for step in steps})


def alter_configs(client: Any, kind: str, changes: Mapping[str, Mapping[str, str | None]]) -> Answers:
    """Change the dynamic configs of topics, brokers or groups; yield each name with its error, or with None.

    `kind` is "topic", "broker" or "group". The value None resets a config to its default.
    """
    resources = [ConfigResource(kind.upper(), name, _operations(each)) for name, each in changes.items()]
    for name, answer in client.alter_configs(resources, raise_on_unknown=False)[kind].items():
        yield name, _alteration_refusal(answer)


def _operations(changes: Mapping[str, str | None]) -> dict[str, tuple[str, str | None]]:
    return {name: ("DELETE", None) if value is None else ("SET", value) for name, value in changes.items()}


def _move(client: Any, steps: Sequence[MoveReplicas]) -> Answers:
    """Start reassignments; yield each topic with the error of its first refused partition, or with None."""
    wanted = {TopicPartition(step.topic, number): row for step in steps for number, row in step.assignments.items()}
    answers = client.alter_partition_reassignments(wanted)
    for step in steps:
        errors = (answers.get(TopicPartition(step.topic, number)) for number in step.assignments)
        error = next((error for error in errors if error is not None), None)
        yield step.topic, None if error is None else StepRefused(error.errno, error.description)


def _delete(client: Any, steps: Sequence[DeleteTopic]) -> Answers:
    """Delete topics by id; yield each topic with its error, or with None if it was deleted or its id is unknown."""
    names = {kafka_uuid.from_text(step.topic_id): step.topic for step in steps}
    for answer in client.delete_topics(list(names), raise_errors=False)["topics"]:
        is_gone = answer["error_code"] == ErrorCode.UNKNOWN_TOPIC_ID
        refusal = None if is_gone else _refusal(answer["error_code"], answer["error_message"])
        yield names[UUID(answer["topic_id"])], refusal


def _refusal(code: int, message: str | None) -> StepRefused | None:
    return None if code == ErrorCode.NONE else StepRefused(code, message)


def _alteration_refusal(answer: str) -> StepRefused | None:
    """Parse kafka-python's text of a result, such as `[Error 40] InvalidConfigurationError: why`.

    Return None if the text is `OK`.
    """
    if answer == "OK":
        return None
    match = _ALTER_ERROR.fullmatch(answer)
    return StepRefused(int(match[1]), match[2]) if match else StepRefused(ErrorCode.UNKNOWN_SERVER_ERROR, answer)


SENDERS: Final[Mapping[type, Callable[[Any, Any], Answers]]] = {
    CreateTopic: _create,
    IncreasePartitions: _increase,
    AlterConfigs: _alter,
    MoveReplicas: _move,
    DeleteTopic: _delete,
}


Value = TypeVar("Value")
Ask = Callable[[Any, Sequence[str]], Mapping[str, Value]]
"""A function that reads, with kafka-python's admin client, a value such as `min.insync.replicas` of each topic."""

_SET_ON: Final = {"topic": "DYNAMIC_TOPIC_CONFIG", "group": "DYNAMIC_GROUP_CONFIG"}
_MIN_ISR: Final = "min.insync.replicas"


class _Heard(NamedTuple, Generic[Value]):
    topic_id: str
    at_s: float
    value: Value


class TopicAnswers(Generic[Value]):
    """A cache with one value for each topic, which `ask` reads from the brokers and which expires after `kept_s`."""

    def __init__(self, ask: Ask[Value], client: Any, kept_s: float, now_s: Callable[[], float]) -> None:
        self._ask = ask
        self._client = client
        self._kept_s = kept_s
        self._now_s = now_s
        self._heard: dict[str, _Heard[Value]] = {}

    def of(self, ids: Mapping[str, str]) -> dict[str, Value]:
        """Return the cached value, or the value that `ask` reads, of each topic in `ids`.

        `ids` maps topic names to topic ids. A cached value is not used if the topic was deleted and created again.
        Topics that are not in `ids` are dropped from the cache.
        """
        now_s = self._now_s()
        kept = {
            name: heard
            for name, heard in self._heard.items()
            if ids.get(name) == heard.topic_id and now_s - heard.at_s < self._kept_s
        }
        asked = [name for name in ids if name not in kept]
        for start in range(0, len(asked), TOPICS_A_REQUEST_MAX):
            found = self._ask(self._client, asked[start : start + TOPICS_A_REQUEST_MAX])
            kept |= {name: _Heard(ids[name], now_s, each) for name, each in found.items()}
        self._heard = kept
        return {name: heard.value for name, heard in kept.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Drop the values of these topics from the cache, because the topics are about to change."""
        for name in names:
            self._heard.pop(name, None)


def overrides(client: Any, names: Sequence[str], kind: str = "topic") -> dict[str, Mapping[str, str]]:
    """Return the configs that are set on each topic or, if `kind` is "group", on each group."""
    found = client.describe_configs([ConfigResource(kind.upper(), name) for name in names])[kind]
    return {
        name: {key: entry["value"] for key, entry in configs.items() if entry["config_source"] == _SET_ON[kind]}
        for name, configs in found.items()
    }


def min_isr(client: Any, names: Sequence[str]) -> dict[str, int]:
    """Return the `min.insync.replicas` of each topic."""
    resources = [ConfigResource("TOPIC", name, {_MIN_ISR: None}) for name in names]
    found = client.describe_configs(resources, config_filter="all").get("topic", {})
    return {name: int(configs[_MIN_ISR]["value"]) for name, configs in found.items() if _MIN_ISR in configs}


_CREATES_TOPICS: Final = "errors.deadletterqueue.auto.create.topics.enable"
_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"


def dead_letter_topic(client: Any, name: str) -> DeadLetterTopic:
    """Return whether the topic of this name can take dead letters."""
    wanted = ConfigResource("TOPIC", name, {DEAD_LETTER_ENABLE: None})
    found = client.describe_configs([wanted], config_filter="all")["topic"][name]  # It is empty if there is no topic.
    if found:
        return DeadLetterTopic(name, found[DEAD_LETTER_ENABLE]["value"] == "true", is_created=False)
    alive = (each["broker_id"] for each in client.describe_cluster()["brokers"] if not each.get("is_fenced"))
    settings = ConfigResource("BROKER", str(next(alive)), {_CREATES_TOPICS: None, _PREFIX: None})
    (values,) = client.describe_configs([settings], config_filter="all")["broker"].values()
    is_created = values[_CREATES_TOPICS]["value"] == "true" and name.startswith(values[_PREFIX]["value"])
    return DeadLetterTopic(name, None, is_created)
