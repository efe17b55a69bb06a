"""Reads which partitions have lost records on every replica, accepts such losses, and reads the brokers' stray logs."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from kafka.admin import ConfigResource

from barnabas_core.config.stray_logs import STRAY_LOGS, STRAY_LOGS_OFFLINE, parse_stray_logs
from barnabas_core.errors import ErrorCode
from barnabas_operator.kafka.step_requests import TOPICS_A_REQUEST_MAX
from barnabas_operator.planning.cluster_state import StrayLog

PartitionKey = tuple[str, int]

LACKING_RECORDS: Final = "barnabas.partitions.lacking.records"
"""The topic config, known only to Barnabas brokers, that describes partitions with lost records."""
UNCLEAN: Final = 1
_LOST: Final = re.compile(r"(\d+): (.*)")


def lost_partitions(client: Any, topics: Sequence[str]) -> dict[PartitionKey, str]:
    """Ask which partitions of these topics have lost records; return a description of the loss by partition.

    Raises KafkaError.
    """
    lost: dict[PartitionKey, str] = {}
    for start in range(0, len(topics), TOPICS_A_REQUEST_MAX):
        some = topics[start : start + TOPICS_A_REQUEST_MAX]
        asked = [ConfigResource("TOPIC", name, configs=[LACKING_RECORDS]) for name in some]
        answer: Mapping[str, Any] = client.describe_configs(asked, config_filter="all").get("topic", {})
        for name, configs in answer.items():
            entry = configs.get(LACKING_RECORDS)
            lost |= parsed(name, entry["value"]) if entry is not None else {}
    return lost


def stray_logs(client: Any, broker_ids: Sequence[int]) -> tuple[StrayLog, ...]:
    """Return the stray logs of these brokers: the logs that a broker has on disk but does not serve.

    Brokers of Apache Kafka report none. Raises KafkaError.
    """
    wanted = dict.fromkeys((STRAY_LOGS, STRAY_LOGS_OFFLINE))
    asked = [ConfigResource("BROKER", str(broker_id), wanted) for broker_id in broker_ids]
    found: Mapping[str, Any] = client.describe_configs(asked, config_filter="all").get("broker", {}) if asked else {}
    return tuple(stray for each in broker_ids for stray in _set_aside(each, found.get(str(each), {})))


def _set_aside(broker_id: int, configs: Mapping[str, Any]) -> Iterator[StrayLog]:
    """Yield the stray logs that a broker lists under STRAY_LOGS in its response to DescribeConfigs."""
    logs, offline = (configs.get(name, {}).get("value") or "" for name in (STRAY_LOGS, STRAY_LOGS_OFFLINE))
    offline_dirs = set(offline.split(","))
    for directory, size_bytes in parse_stray_logs(logs):
        is_offline = directory.rpartition("/")[0] in offline_dirs
        yield StrayLog(broker_id=broker_id, directory=directory, size_bytes=size_bytes, offline=is_offline)


def parsed(topic: str, value: str) -> dict[PartitionKey, str]:
    """Parse the value of a topic's config LACKING_RECORDS; return a description of the loss by partition."""
    found = (_LOST.fullmatch(each) for each in value.split("; "))
    return {(topic, int(each[1])): each[2] for each in found if each is not None}


def accept(client: Any, partitions: Collection[PartitionKey]) -> dict[PartitionKey, str]:
    """Elect the replica with the longest log as leader of each partition; return the errors of failed elections.

    Raises KafkaError.
    """
    wanted: dict[str, list[int]] = {}
    for topic, number in partitions:
        wanted.setdefault(topic, []).append(number)
    answer = client.elect_leaders(UNCLEAN, wanted, raise_errors=False)
    return {
        (topic.topic, each.partition_id): each.error_message or f"error {each.error_code}"
        for topic in answer.replica_election_results
        for each in topic.partition_result
        if each.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
