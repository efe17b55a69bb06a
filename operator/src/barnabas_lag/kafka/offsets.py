"""The requests for the start, end and last stable offsets of logs, and for the first record at or after a time.

The partitions and the coordinators of groups are read from the metadata of any broker. Coordinators are found through
metadata, because FindCoordinator would create `__consumer_offsets`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest
from kafka.protocol.consumer import ListOffsetsRequest
from kafka.protocol.metadata import MetadataRequest

from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import CONSUMER_OFFSETS, TopicPartition, coordinator_partition
from barnabas_kafka.asking import EARLIEST, ISOLATION_VERSION, LATEST, NO_OFFSET, Asking, LogOffset, log_offsets
from barnabas_lag.evaluation.history import Found, Question
from barnabas_lag.evaluation.lags import Names, PartitionReading

Partitions = Mapping[TopicPartition, PartitionReading]


def with_stable_offsets(asking: Asking, partitions: Partitions) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions, with the last stable offset if the leader reports it."""
    if not asking.supports(ListOffsetsRequest, ISOLATION_VERSION):
        return dict(partitions)
    latest = dict.fromkeys(partitions, LATEST)
    stable = log_offsets(asking, lambda each: partitions[each].leader, latest, committed=True)
    return {
        each: reading._replace(stable=stable[each].offset) if each in stable else reading
        for each, reading in partitions.items()
    }


def with_ends(asking: Asking, partitions: Partitions) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions, with the start and end offsets if the leader reports both."""
    oldest = _log_offsets(asking, partitions, dict.fromkeys(partitions, EARLIEST))
    ends = _log_offsets(asking, partitions, dict.fromkeys(partitions, LATEST))
    return {
        each: reading._replace(oldest=oldest[each].offset, end=ends[each].offset)
        if each in oldest and each in ends
        else reading
        for each, reading in partitions.items()
    }


def answers(
    asking: Asking, partitions: Partitions, questions: Mapping[TopicPartition, Question]
) -> dict[TopicPartition, Found | None]:
    """Return, for each partition in `questions`, the first record at or after `time_s`; None if there is none.

    Partitions whose leader does not answer are left out.
    """
    asked = {each: int(question.time_s * 1000) for each, question in questions.items()}
    return {
        each: Found(found.offset, found.timestamp_ms / 1000) if found.offset != NO_OFFSET else None
        for each, found in _log_offsets(asking, partitions, asked).items()
    }


def _log_offsets(
    asking: Asking, partitions: Partitions, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LogOffset]:
    return log_offsets(asking, lambda each: partitions[each].leader, timestamps_ms)


SETTING: Final = "offsets.retention.minutes"
BROKER_RESOURCE: Final = 4
ASKED_EVERY_S: Final = 600.0
"""The seconds between two requests for the setting, which changes only when brokers restart."""
MINUTE_S: Final = 60.0


class OffsetsRetention:
    """The offsets retention of one cluster; `steady_s` is a clock that never goes back."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s: Final = steady_s
        self._asked_s = -inf
        self._seconds: float | None = None
        self.refusal = ""
        """The reason why the retention is unknown; empty if it is known, or if no broker has answered yet."""

    def seconds(self, asking: Asking, broker_ids: Sequence[int]) -> float | None:
        """Return the shortest retention of all brokers, or None if no broker reports it.

        Brokers are asked once in ASKED_EVERY_S, even after a failure. Raises ClusterUnreachable if no request can be
        sent.
        """
        if self._steady_s() - self._asked_s >= ASKED_EVERY_S:
            self._ask(asking, broker_ids)
            self._asked_s = self._steady_s()
        return self._seconds

    def _ask(self, asking: Asking, broker_ids: Sequence[int]) -> None:
        """Ask for the retention; if no broker answers, the last known value stays."""
        requests = {each: [_request(each)] for each in broker_ids}
        answers = [(broker_id, result) for broker_id, _, answer in asking.ask(requests) for result in answer.results]
        if answers:
            known = [seconds for _, result in answers if (seconds := _seconds(result)) is not None]
            self._seconds = min(known, default=None)
            self.refusal = "" if known else _refusal(*answers[0])


def _request(broker_id: int) -> Any:
    """Return the request for the offsets retention of one broker; a broker reports only its own settings."""
    of_broker = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[SETTING]
    )
    return DescribeConfigsRequest(resources=[of_broker])


def _seconds(result: Any) -> float | None:
    minutes = next((each.value for each in result.configs if each.name == SETTING), None)
    return int(minutes) * MINUTE_S if result.error_code == ErrorCode.NONE and minutes is not None else None


def _refusal(broker_id: int, result: Any) -> str:
    if result.error_code == ErrorCode.NONE:
        return f"broker {broker_id} does not know the setting offsets.retention.minutes"
    answered = f"broker {broker_id} answers DescribeConfigs with {for_code(result.error_code).__name__}"
    return f"{answered}; give the exporter's user the right DescribeConfigs on the cluster"


ASKED: Final = MetadataRequest.MetadataRequestTopic(name=CONSUMER_OFFSETS)


def coordinators(metadata: Any) -> Sequence[int]:
    """Return the leaders of the partitions of `__consumer_offsets`, in order; none if the topic does not exist."""
    found = {
        part.partition_index: int(part.leader_id)
        for topic in metadata.topics
        if topic.name == CONSUMER_OFFSETS
        for part in topic.partitions
    }
    return [found[number] for number in sorted(found)]


def without_coordinator(group_ids: Iterable[str], leaders: Sequence[int], broker_ids: Collection[int]) -> set[str]:
    """Return the groups whose coordinator is unavailable, so that nobody knows whether they exist."""
    if not leaders:
        return set()
    return {each for each in group_ids if leaders[coordinator_partition(each, len(leaders))] not in broker_ids}


def partitions_of(metadata: Any, wanted: Names) -> dict[TopicPartition, PartitionReading]:
    """Return the partitions of the topics in `wanted`, sorted, without log start and log end offsets."""
    return {
        TopicPartition(topic.name, part.partition_index): PartitionReading(
            part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes), topic_id=topic.topic_id
        )
        for topic in sorted(metadata.topics, key=lambda topic: str(topic.name))
        if topic.name in wanted
        for part in sorted(topic.partitions, key=lambda part: int(part.partition_index))
    }
