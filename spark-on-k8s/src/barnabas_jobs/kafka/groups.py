"""Consumer groups: which of them have members, and the offsets that they have committed."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas_jobs.credentials import for_librdkafka
from barnabas_jobs.kafka.topics import ASKING
from barnabas_jobs.planning.errors import JobFailed

TIMEOUT_S: Final = 30.0
IN_FLIGHT: Final = 50
"""The largest number of requests in flight; each request is about one group."""
WITHOUT_MEMBERS: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)
OF_MEMBERS: Final = (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION)
"""The errors of a broker for a commit of a group in which only members may commit."""


class Groups:
    """The consumer groups of one cluster. Requests raise JobFailed if no broker answers, or one returns an error."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **ASKING, **for_librdkafka()})

    def with_members(self) -> set[str]:
        """Return the groups that have members, or are about to get some."""
        found: Any = self._answer(self._admin.list_consumer_groups(request_timeout=TIMEOUT_S), "listing groups")
        for error in found.errors:
            raise self._failed(error, "listing groups")
        return {each.group_id for each in found.valid if each.state not in WITHOUT_MEMBERS}

    def committed(self, topic: str, partitions: Collection[int], groups: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the offsets that each of the groups has committed in these partitions, by partition."""
        places = [TopicPartition(topic, partition) for partition in sorted(partitions)]
        found = dict[str, dict[int, int]]()
        waiting = list(groups) if places else []
        for first in range(0, len(waiting), IN_FLIGHT):
            asked = {
                group: self._admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(group, list(places))], request_timeout=TIMEOUT_S
                )[group]
                for group in waiting[first : first + IN_FLIGHT]
            }
            for group, future in asked.items():
                answer: Any = self._answer(future, f"group={group}")
                found[group] = {each.partition: each.offset for each in answer.topic_partitions if each.offset >= 0}
        return found

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """Commit offsets for a group without members. Return False, and commit nothing, if the group has members."""
        places = [TopicPartition(topic, partition, offset) for partition, offset in sorted(offsets.items())]
        wanted = [ConsumerGroupTopicPartitions(group, places)]
        future = self._admin.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S)[group]
        doing = f"committing offsets of group={group} in topic={topic}"
        try:
            answer: Any = future.result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in OF_MEMBERS:
                return False
            raise self._failed(error.args[0], doing) from error
        except TimeoutError as error:
            raise self._silent() from error
        errors = [each.error for each in answer.topic_partitions if each.error is not None]
        if any(error.code() in OF_MEMBERS for error in errors):
            return False
        for reason in errors:
            raise self._failed(reason, doing)
        return True

    def _answer(self, future: Any, doing: str) -> Any:
        try:
            return future.result(TIMEOUT_S)
        except KafkaException as error:
            raise self._failed(error.args[0], doing) from error
        except TimeoutError as error:
            raise self._silent() from error

    def _failed(self, error: KafkaError, doing: str) -> JobFailed:
        return JobFailed(f"{doing}: the cluster at {self._bootstrap} answered: {error.str()}")

    def _silent(self) -> JobFailed:
        return JobFailed(f"bootstrap={self._bootstrap}: no broker answered within {TIMEOUT_S:.0f} s")
