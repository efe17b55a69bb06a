"""A topic as brokers report it through librdkafka: id, config, and the bounds of its partitions.

The configs that a new topic would have are those in the response to a CreateTopics request that only validates. This
request is sent with kafka-python, because librdkafka drops the configs from the response.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec, ResourceType
from kafka.admin import ConfigSourceType

from barnabas_jobs.kafka.admin_client import TIMEOUT_S, Answer, Asking, LeaderMissing, TopicMissing, admin_client
from barnabas_jobs.planning.archived import Bounds
from barnabas_jobs.planning.errors import JobFailed
from barnabas_jobs.planning.restore_plan import Origin, TopicSetting

CONNECT_S: Final = 10.0
POLL_S: Final = 0.05

Asked = TypeVar("Asked")


class Topic(NamedTuple):
    """A topic at the time of the request; `topic_id` is in the form of Kafka's tools."""

    name: str
    topic_id: str
    partitions: list[int]
    leaderless: tuple[int, ...] = ()


class Cluster(Asking):
    """A cluster, by its bootstrap addresses. Also the constructor raises JobFailed if no broker answers in time."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._made_s: dict[str, float] = {}
        """The time at which this object created a topic, by the topic's name.

        For a while after that, some brokers may not know the topic yet.
        """
        self._topics(CONNECT_S)

    def topic(self, name: str) -> Topic:
        """Return the topic. Raises TopicMissing if it does not exist."""
        found = self._retried(name, lambda: self._admin.describe_topics(TopicCollection([name]))[name])
        topic_id = str(found.topic_id).replace("/", "_").replace("+", "-").rstrip("=")
        leaderless = sorted(part.id for part in found.partitions if part.leader is None or part.leader.id < 0)
        return Topic(name, topic_id, sorted(part.id for part in found.partitions), tuple(leaderless))

    def has(self, name: str) -> bool:
        """True if the topic exists, or if this object created it in the last TIMEOUT_S seconds."""
        return self._is_new(name) or name in self._topics()

    def bounds(self, topic: Topic) -> dict[int, Bounds]:
        """Return the start and end offset of each partition.

        While a leader is being elected, ask again for up to TIMEOUT_S seconds. The end offset is the last stable
        offset, because records of open transactions are not read.
        """
        first, last = (
            self._with_leaders(partial(self._offsets, topic, spec))
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        return {partition: Bounds(first[partition], last[partition]) for partition in topic.partitions}

    def log_ends(self, topic: Topic) -> dict[int, int]:
        """Return the offset after the last record of each partition, which may be one of an open transaction."""
        uncommitted = IsolationLevel.READ_UNCOMMITTED
        return self._with_leaders(partial(self._offsets, topic, OffsetSpec.latest(), uncommitted))

    def _offsets(
        self, topic: Topic, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[int, int]:
        wanted = {TopicPartition(topic.name, partition): spec for partition in topic.partitions}
        asked = self._admin.list_offsets(wanted, isolation_level=isolation)
        return {part.partition: self._answer(future, f"topic={topic.name}").offset for part, future in asked.items()}

    def config(self, name: str) -> dict[str, str]:
        """Return all configs of the topic, including defaults of the brokers."""
        return {config: each.value for config, each in self.settings(name).items()}

    def own_config(self, name: str) -> dict[str, str]:
        """Return the configs that were set on the topic itself."""
        return {config: each.value for config, each in self.settings(name).items() if each.origin is Origin.TOPIC}

    def settings(self, name: str) -> dict[str, TopicSetting]:
        """Return all configs of the topic, with the origin of each value."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        answer: dict[str, Any] = self._retried(name, lambda: self._admin.describe_configs([resource])[resource])
        return {
            entry.name: TopicSetting(entry.value, Origin(entry.source))
            for entry in answer.values()
            if entry.value is not None
        }

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records before these offsets, by partition."""
        wanted = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]

        def delete() -> None:
            for future in self._admin.delete_records(wanted).values():
                self._answer(future, f"topic={topic}")

        self._with_leaders(delete)

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        described: Any = self._answer(self._admin.describe_cluster(), "describing the cluster")
        return str(described.cluster_id)

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str], replicas: int | None = None) -> None:
        """Create a topic, and wait until it can be written and read.

        Without `replicas` the brokers choose the number of replicas. Raises JobFailed if the topic cannot be created,
        or has no leaders after TIMEOUT_S.
        """
        new = NewTopic(name, num_partitions=partitions, replication_factor=replicas or -1, config=dict(config))
        self._answer(self._admin.create_topics([new])[name], f"topic={name}")
        self._await_leaders(name)
        self._made_s[name] = time.monotonic()

    def _await_leaders(self, name: str) -> None:
        """Wait until all partitions have leaders, since Apache Kafka answers before its brokers know the topic."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < TIMEOUT_S:
            with suppress(TopicMissing, LeaderMissing):
                found = self.topic(name)
                if not found.leaderless:
                    self._offsets(found, OffsetSpec.latest())
                    return
            time.sleep(POLL_S)
        raise JobFailed(f"topic={name}: the new topic has no leaders after {TIMEOUT_S:.0f} s; run the job again")

    def _is_new(self, name: str) -> bool:
        return name in self._made_s and time.monotonic() - self._made_s[name] < TIMEOUT_S

    def _with_leaders(self, ask: Callable[[], Asked]) -> Asked:
        """Return what `ask` returns. While a leader is being elected, call `ask` again, for up to TIMEOUT_S seconds."""
        began_s = time.monotonic()
        while True:
            try:
                return ask()
            except LeaderMissing:
                if time.monotonic() - began_s >= TIMEOUT_S:
                    raise
            time.sleep(POLL_S)

    def _retried(self, name: str, ask: "Callable[[], Future[Answer]]") -> Answer:
        """Return a broker's answer to the request that `ask` sends.

        Send the request again while the broker does not know a topic that this object has just created.
        """
        while True:
            try:
                return self._answer(ask(), f"topic={name}")
            except TopicMissing:
                if not self._is_new(name):
                    raise
            time.sleep(POLL_S)


def check_same_id(cluster: Cluster, topic: Topic) -> Topic:
    """Return the topic as it is now. Raises JobFailed if it was deleted and created again since `topic` was read."""
    now = cluster.topic(topic.name)
    if now.topic_id != topic.topic_id:
        raise JobFailed(
            f"topic={topic.name} was deleted and created again while it was read (topic id {topic.topic_id} before, "
            f"{now.topic_id} now), so the result does not count; run the job again"
        )
    return now


def settings_of_new_topic(
    bootstrap: str, name: str, partitions: int, config: Mapping[str, str], replicas: int | None = None
) -> dict[str, TopicSetting]:
    """Return the configs that a topic would have, including broker defaults, without creating the topic.

    Raises JobFailed if the brokers would not create the topic, or do not return its configs.
    """
    wanted = {name: {"num_partitions": partitions, "replication_factor": replicas or -1, "configs": dict(config)}}
    with admin_client(bootstrap, f"cannot get the configs of the new topic={name} from the brokers") as admin:
        (answer,) = admin.create_topics(wanted, validate_only=True, raise_errors=False)["topics"]
    return _settings(bootstrap, answer)


def _settings(bootstrap: str, answer: Mapping[str, Any]) -> dict[str, TopicSetting]:
    if answer["error_code"]:
        raise JobFailed(f"topic={answer['name']}: the cluster at {bootstrap} answered: {answer['error_message']}")
    if "configs" not in answer:
        raise JobFailed(
            f"topic={answer['name']}: the cluster at {bootstrap} does not return the configs of a new topic. Grant "
            "the user DescribeConfigs on the topic, or create the topic before you restore"
        )
    return {
        setting: TopicSetting(entry["value"], Origin(ConfigSourceType[entry["config_source"]]))
        for setting, entry in answer["configs"].items()
        if entry["value"] is not None
    }
