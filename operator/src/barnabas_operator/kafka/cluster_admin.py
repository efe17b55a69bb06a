"""The admin client: gathers what planning needs to know, and applies its steps. One connection to one cluster.

kafka-python's client does its IO in a thread of its own; these calls block until the answer or the time-out.
"""

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, NoReturn, Self
from uuid import UUID

from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.errors import KafkaError

from barnabas_core import kafka_uuid
from barnabas_core.errors import ErrorCode
from barnabas_operator.planning.cluster_state import ClusterState, ReplicaIds, TopicState
from barnabas_operator.planning.steps import AlterConfigs, CreateTopic, DeleteTopic, IncreasePartitions, Step

REQUEST_TIMEOUT_S: Final = 10.0
VISIBLE_TIMEOUT_S: Final = 10.0
VISIBLE_POLL_S: Final = 0.02

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_ALTER_ERROR: Final = re.compile(r"\[Error (-?\d+)\] \w+(?:: )?(.*)", re.DOTALL)


class ClusterUnreachable(Exception):
    """No broker answered in time, or the connection broke."""


class StepRefused(Exception):
    """A broker said no: Kafka's code and message."""

    def __init__(self, code: int, message: str | None) -> None:
        self.code = code
        super().__init__(f"{error_name(code)} ({code})" + (f": {message}" if message else ""))


def error_name(code: int) -> str:
    """Kafka's name of an error code."""
    return ErrorCode(code).name if code in set(ErrorCode) else "UNRECOGNIZED_ERROR"


@contextmanager
def reachable() -> Iterator[None]:
    """Turns the client's own errors (no connection, no answer in time) into ClusterUnreachable."""
    try:
        yield
    except KafkaError as error:
        raise ClusterUnreachable(str(error)) from error


class ClusterAdmin:
    """A connected admin client. Every method may raise ClusterUnreachable."""

    def __init__(self, bootstrap: str, connect_timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        """Connects to any of `host:port[,host:port]`."""
        self.bootstrap = bootstrap
        with reachable():
            self.client: Any = KafkaAdminClient(
                bootstrap_servers=bootstrap.split(","),
                client_id="barnabas-operator",
                bootstrap_timeout_ms=int(connect_timeout_s * 1000),
                request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
                reconnect_backoff_max_ms=1000,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the client's thread and connections."""
        self.client.close()

    def cluster_state(self, with_configs: Collection[str]) -> ClusterState:
        """Brokers, every topic's replicas, and the configs that are set on these topics."""
        with reachable():
            brokers = [broker for broker in self.client.describe_cluster()["brokers"] if not broker.get("is_fenced")]
            described = [topic for topic in self.client.describe_topics() if topic["error_code"] == 0]
            names = [topic["name"] for topic in described if topic["name"] in with_configs]
            overrides = self._overrides(names)
            defaults = self._broker_defaults(brokers[0]["broker_id"])
        return ClusterState(
            racks={broker["broker_id"]: broker["rack"] for broker in brokers},
            topics={topic["name"]: _topic_state(topic, overrides.get(topic["name"], {})) for topic in described},
            num_partitions=defaults["num.partitions"],
            default_replication_factor=defaults["default.replication.factor"],
        )

    def _overrides(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource("TOPIC", name) for name in names]
        if not resources:
            return {}
        found = self.client.describe_configs(resources)["topic"]
        return {
            name: {key: entry["value"] for key, entry in configs.items() if entry["config_source"] == _SET_ON_TOPIC}
            for name, configs in found.items()
        }

    def _broker_defaults(self, broker_id: int) -> dict[str, int]:
        wanted = dict.fromkeys(("num.partitions", "default.replication.factor"))
        resource = ConfigResource("BROKER", str(broker_id), wanted)
        found = self.client.describe_configs([resource], config_filter="all")["broker"][str(broker_id)]
        return {name: int(found[name]["value"]) for name in wanted}

    def apply(self, step: Step) -> None:
        """Carries out one step and returns when the cluster shows its result. Raises StepRefused."""
        with reachable():
            APPLY[type(step)](self, step)

    def _create(self, step: CreateTopic) -> None:
        topic = {"assignments": dict(enumerate(map(list, step.assignments))), "configs": dict(step.configs)}
        answer = self.client.create_topics({step.topic: topic}, raise_errors=False)["topics"][0]
        _check(answer["error_code"], answer["error_message"])
        self._wait_for_partitions(step.topic, len(step.assignments))

    def _increase(self, step: IncreasePartitions) -> None:
        change = {"count": step.count, "assignments": list(map(list, step.assignments))}
        (answer,) = self.client.create_partitions({step.topic: change}, raise_errors=False).results
        _check(answer.error_code, answer.error_message)
        self._wait_for_partitions(step.topic, step.count)

    def _alter(self, step: AlterConfigs) -> None:
        operations = {
            name: ("DELETE", None) if value is None else ("SET", value) for name, value in step.changes.items()
        }
        resource = ConfigResource("TOPIC", step.topic, operations)
        answer = self.client.alter_configs([resource], raise_on_unknown=False)["topic"][step.topic]
        if answer != "OK":
            _refused_alteration(answer)

    def _delete(self, step: DeleteTopic) -> None:
        (answer,) = self.client.delete_topics([step.topic], raise_errors=False)["topics"]
        _check(answer["error_code"], answer.get("error_message"))
        self._wait(lambda: step.topic not in self.client.list_topics(), f"{step.topic} is still there")

    def _wait_for_partitions(self, topic: str, count: int) -> None:
        """A broker accepts a change before every broker shows it."""

        def led() -> bool:
            (found,) = self.client.describe_topics([topic])
            leaders = [partition["leader_id"] for partition in found["partitions"]]
            return len(leaders) >= count and min(leaders) >= 0

        self._wait(led, f"{topic} does not show {count} partitions with a leader")

    @staticmethod
    def _wait(done: Callable[[], bool], otherwise: str) -> None:
        deadline = time.monotonic() + VISIBLE_TIMEOUT_S
        while not done():
            if time.monotonic() > deadline:
                raise ClusterUnreachable(f"{otherwise} after {VISIBLE_TIMEOUT_S:.0f} s")
            time.sleep(VISIBLE_POLL_S)


APPLY: Final[Mapping[type, Callable[[ClusterAdmin, Any], None]]] = {
    CreateTopic: ClusterAdmin._create,
    IncreasePartitions: ClusterAdmin._increase,
    AlterConfigs: ClusterAdmin._alter,
    DeleteTopic: ClusterAdmin._delete,
}


def _topic_state(described: Mapping[str, Any], overrides: Mapping[str, str]) -> TopicState:
    by_index: dict[int, ReplicaIds] = {
        partition["partition_index"]: tuple(partition["replica_nodes"]) for partition in described["partitions"]
    }
    partitions = tuple(replicas for _, replicas in sorted(by_index.items()))
    return TopicState(kafka_uuid.to_text(UUID(described["topic_id"])), partitions, overrides)


def _check(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        raise StepRefused(code, message)


def _refused_alteration(answer: str) -> NoReturn:
    """kafka-python tells the outcome of an alteration as text only: `[Error 40] InvalidConfigurationError: why`."""
    match = _ALTER_ERROR.fullmatch(answer)
    if match is None:
        raise StepRefused(ErrorCode.UNKNOWN_SERVER_ERROR, answer)
    raise StepRefused(int(match[1]), match[2])
