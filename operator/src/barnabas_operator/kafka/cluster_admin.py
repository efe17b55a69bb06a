"""The admin client of one cluster, which reads the state of the cluster and makes planned changes.

kafka-python's client does its I/O in a separate thread; the methods block until the response or the timeout.

Feature levels (KIP-584): read them from brokers, and raise them. Every function may raise KafkaError.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar
from uuid import UUID

from kafka.admin import ConfigResource
from kafka.errors import KafkaConnectionError, KafkaError, NodeNotReadyError, NoError, UnknownBrokerIdError, for_code
from kafka.protocol.admin import (
    DescribeClusterRequest,
    DescribeLogDirsRequest,
    ListPartitionReassignmentsRequest,
    UpdateFeaturesRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.metadata import ApiVersionsRequest, MetadataRequest
from kafka.structs import TopicPartitionReplica

from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock
from barnabas_core.conventions import METADATA_LEVEL
from barnabas_core.errors import ErrorCode
from barnabas_core.placement import DiskSpace
from barnabas_core.topic_partition import TopicPartition
from barnabas_kafka.connection import REQUEST_TIMEOUT_S, ClusterUnreachable, connected_client, reachable
from barnabas_kafka.security import IN_CLEAR, Credentials
from barnabas_operator.kafka.step_requests import (
    StepRefused,
    TopicAnswers,
    alter_configs,
    apply_user_steps,
    cluster_users,
    lost_partitions,
    min_isr,
    overrides,
    requests_of,
    send,
    stray_logs,
)
from barnabas_operator.planning.brokers.cluster_checks import Supported
from barnabas_operator.planning.cluster_state import (
    ClusterState,
    Disks,
    LogDirContent,
    MetadataVersions,
    ReplicaIds,
    StrayLog,
    TopicState,
    Trouble,
)
from barnabas_operator.planning.topics.replica_moves import (
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    LogDirMove,
    MoveReplicas,
    NewReplica,
    TopicStep,
)
from barnabas_operator.planning.users.user_plan import ClusterUsers, UserStep


class UnregisterBrokerRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """The request that removes the broker with this id from the metadata."""


class UnregisterBrokerResponse(ApiMessage, load_json="barnabas_core.definitions"):
    """The response, with `error_code` and perhaps an `error_message`."""


def unregistration(broker_id: int) -> Any:
    """Return the request that unregisters a broker."""
    make: Any = UnregisterBrokerRequest
    return make(broker_id=broker_id)


UPGRADE: Final = 1
"""The upgrade type (KIP-584) with which brokers refuse to lower a level."""
BEFORE_LEVELS: Final = Supported(1, 1)
"""The supported levels of a broker that does not report the feature METADATA_LEVEL."""


def metadata_versions(client: Any) -> MetadataVersions | None:
    """Return the finalized metadata version, and the highest version that the responding broker supports.

    Return None if the broker does not report the feature METADATA_LEVEL, which Apache Kafka's brokers do not have.
    """
    found = client.describe_features().get(METADATA_LEVEL, {})
    if not found.keys() >= {"supported", "finalized"}:
        return None
    return MetadataVersions(found["finalized"][1], found["supported"][1])


def supported_metadata_versions(client: Any, broker_id: int) -> Supported:
    """Return the lowest and the highest metadata version that this broker supports."""
    config = client.connections.config
    names = {name: config[name] for name in ("client_software_name", "client_software_version")}
    answer = client.ask(ApiVersionsRequest(**names, min_version=3), broker_id)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(f"broker {broker_id} does not report its features")
    supported = {each.name: Supported(each.min_version, each.max_version) for each in answer.supported_features or ()}
    return supported.get(METADATA_LEVEL, BEFORE_LEVELS)


def raise_metadata_version(client: Any, level: int, timeout_s: float) -> StepRefused | None:
    """Finalize this level; return the brokers' refusal, or None.

    A level that is already finalized is no error.
    """
    kind: Any = UpdateFeaturesRequest.FeatureUpdateKey
    update = kind(feature=METADATA_LEVEL, max_version_level=level, allow_downgrade=False, upgrade_type=UPGRADE)
    make: Any = UpdateFeaturesRequest
    request = make(timeout_ms=int(timeout_s * 1000), feature_updates=[update], validate_only=False)
    answer = client.ask(request)
    return StepRefused(answer.error_code, answer.error_message) if answer.error_code != ErrorCode.NONE else None


Topics = list[dict[str, Any]]
"""The topics as kafka-python's client describes them."""
Moves = dict[str, dict[int, ReplicaIds]]
"""The replicas that a partition will have after its reassignment, by topic and partition."""

T = TypeVar("T")

log = logging.getLogger(__name__)


def reassignments(client: Any) -> Moves:
    """Return the active reassignments. Ask the broker to which reassignment requests were last sent.

    Other brokers may not know the latest reassignments yet, but are asked if that broker fails. Raises KafkaError.
    """
    return _of_mover(client, lambda broker_id: _reassignments(client, broker_id))


def topics_and_moves(client: Any) -> tuple[Topics, Moves]:
    """Return all topics and their active reassignments. Raises KafkaError.

    Reassignments are read before and after the topics, so that a reassignment that begins or ends meanwhile counts as
    active. Otherwise the partition would seem to have too many replicas, and the reassignment would be cancelled.
    """

    def ask(broker_id: int | None) -> tuple[Topics, Moves]:
        before = _reassignments(client, broker_id)
        topics = _topics(client, broker_id)
        after = _reassignments(client, broker_id)
        names = before.keys() | after.keys()
        return topics, {name: before.get(name, {}) | after.get(name, {}) for name in names}

    return _of_mover(client, ask)


def _of_mover(client: Any, ask: Callable[[int | None], T]) -> T:
    """Call `ask` for the broker that last got a reassignment request, or for another broker if that broker fails."""
    connections = client.connections
    mover = connections.mover
    if mover is not None and mover not in connections.failing:
        try:
            return ask(mover)
        except KafkaError as error:
            log.warning("broker %d does not report reassignments; asking another broker: %s", mover, error)
    return ask(connections.run(connections.least_loaded_node))


def _topics(client: Any, broker_id: int | None) -> Topics:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client.ask(request, broker_id)
    return [topic.to_dict() for topic in answer.topics]


def _reassignments(client: Any, broker_id: int | None) -> Moves:
    request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_TIMEOUT_S * 1000), topics=None)
    answer = client.ask(request, broker_id)
    if answer.error_code != ErrorCode.NONE:
        raise for_code(answer.error_code)(answer.error_message)
    return {
        topic.name: {
            each.partition_index: tuple(id_ for id_ in each.replicas if id_ not in each.removing_replicas)
            for each in topic.partitions
        }
        for topic in answer.topics
    }


VISIBLE_TIMEOUT_S: Final = 10.0
VISIBLE_POLL_S: Final = 0.02

PREFERRED: Final = 0  # This is KIP-460's number for an election of the preferred replica.
_SET_ON_BROKER: Final = "DYNAMIC_BROKER_CONFIG"


TimedWrite = Callable[[float], AbstractContextManager[object]]


class BlockingClock(Clock, Protocol):
    """A clock with which a thread can wait."""

    def block(self, seconds: float) -> None:
        """Block the thread for some seconds."""


class ClusterAdmin:
    """A connected admin client. Every method may raise ClusterUnreachable."""

    def __init__(
        self,
        bootstrap: str,
        clock: BlockingClock,
        connect_timeout_s: float = REQUEST_TIMEOUT_S,
        configs_kept_s: float = 0.0,
        writing: TimedWrite = nullcontext,
        security: Credentials = IN_CLEAR,
    ) -> None:
        """Connect to any of `host:port[,host:port]`.

        Configs of topics are cached for `configs_kept_s` seconds. A request that changes something runs in the context
        manager `writing(seconds)`, and may take `seconds`; exceptions of `writing` are passed on.
        """
        self.bootstrap = bootstrap
        self._clock = clock
        self._writing = writing
        self.answered_at = self._clock.monotonic_s()
        """The monotonic time of the last response to a change; it shows that a long reconciliation makes progress."""
        self.client: Any = connected_client(bootstrap, connect_timeout_s, "barnabas-operator", security)
        self._overrides = TopicAnswers(overrides, self.client, configs_kept_s, clock.monotonic_s)
        self._min_isr = TopicAnswers(min_isr, self.client, configs_kept_s, clock.monotonic_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the client's thread, and close its connections."""
        self.client.close()

    def cluster_state(self) -> ClusterState:
        """Return the brokers and the replicas of every topic, but no topic configs; `with_overrides` adds the configs.

        If a broker fails during the call, the state is read once more from the other brokers.
        """
        with reachable():
            try:
                return self._read_state()
            except (KafkaConnectionError, NodeNotReadyError, UnknownBrokerIdError) as error:
                log.warning("reading the cluster's state once more, because a broker failed: %s", error)
                return self._read_state()

    def _read_state(self) -> ClusterState:
        cluster = self.client.describe_cluster()
        brokers = [broker for broker in cluster["brokers"] if not broker["is_fenced"]]
        if not brokers:
            raise ClusterUnreachable("no broker is alive yet")
        self.client.meet(broker["broker_id"] for broker in brokers)
        topics, moving = topics_and_moves(self.client)
        described = [topic for topic in topics if topic["error_code"] == ErrorCode.NONE]
        defaults = self._broker_defaults([broker["broker_id"] for broker in brokers])
        return ClusterState(
            racks={broker["broker_id"]: broker["rack"] for broker in brokers},
            topics={topic["name"]: _topic_state(topic, moving.get(topic["name"], {})) for topic in described},
            num_partitions=defaults["num.partitions"],
            default_replication_factor=defaults["default.replication.factor"],
            default_min_insync_replicas=defaults["min.insync.replicas"],
            controller_id=cluster["controller_id"],
            registered=frozenset(broker["broker_id"] for broker in cluster["brokers"]),
            troubles=self._troubles(described),
            cluster_id=cluster["cluster_id"],
            metadata_versions=metadata_versions(self.client),
        )

    def with_overrides(self, state: ClusterState, names: Collection[str]) -> ClusterState:
        """Return `state` with the configs of the topics in `names` added; topics that do not exist are ignored."""
        ids = {name: state.topics[name].topic_id for name in names if name in state.topics}
        if not ids:
            return state
        with reachable():
            found = self._overrides.of(ids)
        return state.with_overrides(found)

    def _troubles(self, described: Sequence[Mapping[str, Any]]) -> tuple[Trouble, ...]:
        """Return the offline and under-replicated partitions, with the fields `lost` and `under_min_isr` set."""
        found = tuple(_troubles(described))
        lost = lost_partitions(self.client, sorted({each.topic for each in found if each.offline}))
        behind = {each.topic for each in found if not each.offline}
        least = self._min_isr.of({topic["name"]: topic["topic_id"] for topic in described if topic["name"] in behind})
        return tuple(
            replace(
                each,
                lost=lost.get((each.topic, each.partition)),
                under_min_isr=not each.offline and len(each.in_sync) < least.get(each.topic, 1),
            )
            for each in found
        )

    def _broker_defaults(self, broker_ids: Sequence[int]) -> dict[str, int]:
        """Return the defaults for new topics from the first broker that answers; a listed broker may be dead."""
        for broker_id in broker_ids[:-1]:
            try:
                return self._defaults_of(broker_id)
            except KafkaError as error:
                log.warning("broker %d does not report its settings; asking the next broker: %s", broker_id, error)
        return self._defaults_of(broker_ids[-1])

    def _defaults_of(self, broker_id: int) -> dict[str, int]:
        wanted = dict.fromkeys(("num.partitions", "default.replication.factor", "min.insync.replicas"))
        resource = ConfigResource("BROKER", str(broker_id), wanted)
        found = self.client.describe_configs([resource], config_filter="all")["broker"][str(broker_id)]
        return {name: int(found[name]["value"]) for name in wanted}

    def apply(self, steps: Sequence[TopicStep]) -> dict[str, StepRefused]:
        """Make planned changes of one kind, at most one for each topic; return the errors of refused changes by topic.

        Blocks until the brokers' metadata shows the accepted changes.
        """
        refused: dict[str, StepRefused] = {}
        with reachable():
            for request in requests_of(steps):
                self._overrides.forget(step.topic for step in request)
                with self._writing(REQUEST_TIMEOUT_S):
                    answers = send(self.client, request)
                self.answered_at = self._clock.monotonic_s()
                refused |= {topic: refusal for topic, refusal in answers.items() if refusal is not None}
                self._wait_until_shown([step for step in request if step.topic not in refused])
        return refused

    def users(self) -> ClusterUsers:
        """Return the credentials, ACLs and quotas of all users."""
        return cluster_users(self.client)

    def apply_to_users(self, steps: Sequence[UserStep]) -> dict[str, tuple[UserStep, StepRefused]]:
        """Make planned changes of users; return the first refused change of each user, with the error."""
        refused = apply_user_steps(self.client, steps, lambda: self._writing(REQUEST_TIMEOUT_S))
        self.answered_at = self._clock.monotonic_s()
        return refused

    def disks(self, broker_ids: Iterable[int]) -> Disks:
        """Return the online log dirs and their replicas; a broker that does not answer is logged and left out."""
        online: dict[int, dict[str, LogDirContent]] = {}
        for broker_id in broker_ids:
            try:  # kafka-python's own call would first ask another broker, which may have died.
                answer = self.client.ask(DescribeLogDirsRequest(topics=None), broker_id)
            except KafkaError as error:
                log.warning("the disks of broker %d are unknown, because it does not answer: %s", broker_id, error)
            else:
                found = (each.to_dict() for each in answer.results)
                online[broker_id] = {
                    each["log_dir"]: _content(each) for each in found if each["error_code"] == ErrorCode.NONE
                }
        return Disks(online)

    def prefer_log_dirs(self, placed: Mapping[NewReplica, str]) -> None:
        """Ask brokers to create future replicas in these log dirs (KIP-113).

        All responses are ignored, because brokers answer REPLICA_NOT_AVAILABLE although they remember the log dirs.
        """
        with reachable(), self._writing(REQUEST_TIMEOUT_S):
            self.client.alter_replica_log_dirs(
                {TopicPartitionReplica(*replica): path for replica, path in placed.items()}
            )

    def move_between_log_dirs(self, moves: Collection[LogDirMove]) -> list[str]:
        """Start moves of replicas between log dirs of their brokers; return a message for each refused move."""
        replicas = {each: TopicPartitionReplica(*each.partition, each.broker_id) for each in moves}
        with reachable(), self._writing(REQUEST_TIMEOUT_S):
            answers = self.client.alter_replica_log_dirs({replicas[each]: each.path for each in moves})
        errors = {each: answers[replica] for each, replica in replicas.items()}
        return [f"could not {each}: {error.__name__}" for each, error in errors.items() if error is not NoError]

    def broker_overrides(self, broker_ids: Iterable[int]) -> dict[int, dict[str, str]]:
        """Return the dynamic configs that are set for each of these brokers, without cluster-wide configs."""
        with reachable():
            resources = [ConfigResource("BROKER", str(broker)) for broker in broker_ids]
            found = self.client.describe_configs(resources)["broker"] if resources else {}
        return {
            int(broker): {
                name: entry["value"] for name, entry in entries.items() if entry["config_source"] == _SET_ON_BROKER
            }
            for broker, entries in found.items()
        }

    def stray_logs(self, broker_ids: Sequence[int]) -> tuple[StrayLog, ...]:
        """Return the stray logs of these brokers, which are logs that the brokers do not serve."""
        with reachable():
            return stray_logs(self.client, broker_ids)

    def alter_brokers(self, changes: Mapping[int, Mapping[str, str | None]]) -> dict[int, StepRefused]:
        """Set dynamic configs of brokers; None resets a config to its default. Return the errors by broker."""
        by_name = {str(broker): each for broker, each in changes.items()}
        with reachable(), self._writing(REQUEST_TIMEOUT_S):
            answers = dict(alter_configs(self.client, "broker", by_name))
        return {int(broker): refusal for broker, refusal in answers.items() if refusal is not None}

    def balance_leaders(self) -> None:
        """Elect the preferred replica as leader of each partition, if it is in sync. Failed elections are ignored."""
        with reachable(), self._writing(REQUEST_TIMEOUT_S):
            self.client.elect_leaders(PREFERRED, raise_errors=False)

    def supported_metadata_versions(self, broker_ids: Iterable[int]) -> dict[int, Supported]:
        """Return the supported metadata versions by broker; brokers that do not answer are left out."""
        supported = {}
        for broker_id in broker_ids:
            try:
                supported[broker_id] = supported_metadata_versions(self.client, broker_id)
            except KafkaError as error:
                log.warning("broker %d reports no features, so the metadata version cannot rise: %s", broker_id, error)
        return supported

    def raise_metadata_version(self, level: int) -> StepRefused | None:
        """Finalize a metadata version; return the brokers' refusal, or None."""
        with reachable(), self._writing(REQUEST_TIMEOUT_S):
            return raise_metadata_version(self.client, level, REQUEST_TIMEOUT_S)

    def forget_brokers(self, count: int) -> list[int]:
        """Unregister the fenced brokers with an id of at least `count` and no replicas; return their ids."""
        with reachable():
            cluster = self.client.ask(DescribeClusterRequest(include_fenced_brokers=True))
            gone = [each.broker_id for each in cluster.brokers if each.is_fenced and each.broker_id >= count]
            answers = {broker_id: self._unregister(broker_id) for broker_id in gone}
        return [broker_id for broker_id, answer in answers.items() if answer.error_code == ErrorCode.NONE]

    def _unregister(self, broker_id: int) -> Any:
        with self._writing(REQUEST_TIMEOUT_S):
            return self.client.ask(unregistration(broker_id))

    def _wait_until_shown(self, steps: Sequence[TopicStep]) -> None:
        """Wait until the brokers' metadata shows the changes, which one broker accepts before others know of them."""
        partitions = {step.topic: step.count for step in steps if isinstance(step, IncreasePartitions)}
        partitions |= {step.topic: len(step.assignments) for step in steps if isinstance(step, CreateTopic)}
        if partitions:
            self._wait(lambda: self._all_led(partitions), "some new partitions have no leader")
        moved = [step for step in steps if isinstance(step, MoveReplicas)]
        if moved:
            self._wait(lambda: self._all_moving(moved), "some accepted replica moves are not yet in the metadata")
        deleted = {step.topic_id: step.topic for step in steps if isinstance(step, DeleteTopic)}
        if deleted:
            self._wait(lambda: not self._has_any(deleted), "some deleted topics still exist")

    def _all_led(self, partitions: Mapping[str, int]) -> bool:
        led = {
            topic["name"]: sum(partition["leader_id"] >= 0 for partition in topic["partitions"])
            for topic in self.client.describe_topics(list(partitions))
        }
        return all(led[topic] >= count for topic, count in partitions.items())

    def _has_any(self, topics: Mapping[str, str]) -> bool:
        """True if a topic with one of these ids exists; a new topic of the same name has another id."""
        described = self.client.describe_topics(list(topics.values()))
        there = (topic["topic_id"] for topic in described if topic["error_code"] == ErrorCode.NONE)
        return not topics.keys().isdisjoint(kafka_uuid.to_text(UUID(topic_id)) for topic_id in there)

    def _all_moving(self, steps: Collection[MoveReplicas]) -> bool:
        """True if these replicas are moving, have moved, or were deleted with their topic."""
        moving = reassignments(self.client)
        states = {
            topic["name"]: _topic_state(topic, moving.get(topic["name"], {}))
            for topic in self.client.describe_topics([step.topic for step in steps])
            if topic["error_code"] == ErrorCode.NONE
        }
        return all(
            set(states[step.topic].targets[number]) == set(row)
            for step in steps
            if step.topic in states
            for number, row in step.assignments.items()
            if number < len(states[step.topic].targets)
        )

    def _wait(self, done: Callable[[], bool], otherwise: str) -> None:
        deadline = self._clock.monotonic_s() + VISIBLE_TIMEOUT_S
        while not done():
            if self._clock.monotonic_s() > deadline:
                raise ClusterUnreachable(f"{otherwise} after {VISIBLE_TIMEOUT_S:.0f} s")
            self._clock.block(VISIBLE_POLL_S)


def _topic_state(described: Mapping[str, Any], moving: Mapping[int, ReplicaIds]) -> TopicState:
    by_index: dict[int, ReplicaIds] = {
        partition["partition_index"]: tuple(partition["replica_nodes"]) for partition in described["partitions"]
    }
    partitions = tuple(replicas for _, replicas in sorted(by_index.items()))
    return TopicState(kafka_uuid.to_text(UUID(described["topic_id"])), partitions, {}, moving)


def _content(log_dir: Mapping[str, Any]) -> LogDirContent:
    here: dict[TopicPartition, int] = {}
    coming: dict[TopicPartition, int] = {}
    for topic in log_dir["topics"]:
        for part in topic["partitions"]:
            where = TopicPartition(topic["name"], part["partition_index"])
            (coming if part["is_future_key"] else here)[where] = part["partition_size"]
    return LogDirContent(DiskSpace(log_dir["usable_bytes"], log_dir["total_bytes"]), here, coming)


def _troubles(described: Iterable[Mapping[str, Any]]) -> Iterator[Trouble]:
    for topic in described:
        for part in topic["partitions"]:
            in_sync = tuple(part["isr_nodes"])
            missing = tuple(replica for replica in part["replica_nodes"] if replica not in in_sync)
            offline = part["leader_id"] < 0
            if missing or offline:
                where = topic["name"], part["partition_index"]
                yield Trouble(*where, missing, () if offline else in_sync, offline)
