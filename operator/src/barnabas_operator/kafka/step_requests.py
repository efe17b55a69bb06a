"""The requests of steps to brokers, and the users of a Cluster: how they are read, and the steps of their plans."""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeConfigsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.api_message import ApiMessage
from kafka.structs import TopicPartition

from barnabas_core import kafka_uuid
from barnabas_core.acls import AclEntry, AclOperation, AclPattern, PatternType, Permission, ResourceType
from barnabas_core.config.broker_definitions import STRAY_LOGS, STRAY_LOGS_OFFLINE, parse_stray_logs
from barnabas_core.config.describe import ConfigSource
from barnabas_core.errors import ErrorCode
from barnabas_kafka.connection import ClusterUnreachable, reachable
from barnabas_operator.planning.cluster_state import StrayLog
from barnabas_operator.planning.groups.reset_step import DEAD_LETTER_ENABLE, DeadLetterTopic
from barnabas_operator.planning.topics.replica_moves import (
    AlterConfigs,
    CreateTopic,
    DeleteTopic,
    IncreasePartitions,
    MoveReplicas,
    TopicStep,
)
from barnabas_operator.planning.users.user_plan import (
    PRINCIPAL,
    Acl,
    ClusterUsers,
    CreateAcls,
    DeleteAcls,
    DeletePassword,
    FoundUser,
    SetPassword,
    SetQuotas,
    UserStep,
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


def alter_configs(
    client: Any, kind: str, changes: Mapping[str, Mapping[str, str | None]], *, only_checks: bool = False
) -> Answers:
    """Change the dynamic configs of topics, brokers or groups; yield each name with its error, or with None.

    `kind` is "topic", "broker" or "group". The value None resets a config to its default. With `only_checks`, brokers
    check the change and do not make it.
    """
    resources = [ConfigResource(kind.upper(), name, _operations(each)) for name, each in changes.items()]
    answers = client.alter_configs(resources, validate_only=only_checks, raise_on_unknown=False)
    for name, answer in answers[kind].items():
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

_SET_ON: Final = {"topic": ConfigSource.TOPIC, "group": ConfigSource.GROUP}
_MIN_ISR: Final = "min.insync.replicas"


class _Cached(NamedTuple, Generic[Value]):
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
        self._cached: dict[str, _Cached[Value]] = {}

    def of(self, ids: Mapping[str, str]) -> dict[str, Value]:
        """Return the cached value, or the value that `ask` reads, of each topic in `ids`.

        `ids` maps topic names to topic ids. A cached value is not used if the topic was deleted and created again.
        Topics that are not in `ids` are dropped from the cache.
        """
        now_s = self._now_s()
        kept = {
            name: cached
            for name, cached in self._cached.items()
            if ids.get(name) == cached.topic_id and now_s - cached.at_s < self._kept_s
        }
        asked = [name for name in ids if name not in kept]
        for start in range(0, len(asked), TOPICS_A_REQUEST_MAX):
            found = self._ask(self._client, asked[start : start + TOPICS_A_REQUEST_MAX])
            kept |= {name: _Cached(ids[name], now_s, each) for name, each in found.items()}
        self._cached = kept
        return {name: cached.value for name, cached in kept.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Drop the values of these topics from the cache, because the topics are about to change."""
        for name in names:
            self._cached.pop(name, None)


def overrides(client: Any, names: Sequence[str], kind: str = "topic") -> dict[str, Mapping[str, str]]:
    """Return the configs that are set on each topic or, if `kind` is "group", on each group.

    The request is our own: `describe_configs` of kafka-python takes twice as long for the configs of many topics.
    """
    resource_type, set_on = ConfigResourceType[kind.upper()].value, _SET_ON[kind]
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=resource_type, resource_name=name, configuration_keys=None
        )
        for name in names
    ]
    answer = client.ask(DescribeConfigsRequest(resources=asked))
    return {
        each.resource_name: {entry.name: entry.value for entry in each.configs if entry.config_source == set_on}
        for each in answer.results
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


ENTRIES_A_REQUEST_MAX: Final = 500
"""The largest number of users or ACLs in one request, so that the response takes about a second."""
_ANY: Final = 1
_USER: Final = "user"
_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_NAMES: Final = {int(code): name for name, code in _MECHANISMS.items()}
Failures = Iterator[tuple[str, StepRefused]]
"""The users whose changes were refused, each with the error."""


class AlterUserScramCredentialsRequest(ApiMessage, load_json="barnabas_core.definitions"):
    """Kafka's request, with the field PreviousPasswordMs of our own, which kafka-python does not have."""


_AlterCredentials: Final[Any] = AlterUserScramCredentialsRequest
"""The class, whose nested classes kafka-python makes at runtime."""


def cluster_users(client: Any) -> ClusterUsers:
    """Return all users with a SCRAM password, an ACL or a quota. Raises ClusterUnreachable if no broker answers."""
    with reachable():
        mechanisms, acls, quotas = _mechanisms(client), _acls(client), _quotas(client)
    names = {*mechanisms, *(acls or ()), *quotas}
    users = {
        name: FoundUser(frozenset(mechanisms.get(name, ())), frozenset((acls or {}).get(name, ())), quotas.get(name))
        for name in names
    }
    return ClusterUsers(users, acls is not None)


def _checked(answer: Any) -> Any:
    """Return the response. Raises ClusterUnreachable if the response has an error for the whole request."""
    if answer.error_code != ErrorCode.NONE:
        why = f": {answer.error_message}" if answer.error_message else ""
        raise ClusterUnreachable(f"{error_name(answer.error_code)} ({answer.error_code}){why}")
    return answer


def _mechanisms(client: Any) -> Mapping[str, set[str]]:
    answer = _checked(client.ask(DescribeUserScramCredentialsRequest(users=None)))
    return {
        each.user: {_NAMES[info.mechanism] for info in each.credential_infos if info.mechanism in _NAMES}
        for each in answer.results
    }


def _acls(client: Any) -> Mapping[str, set[Acl]] | None:
    """Return the ACLs by user, or None if the brokers have no authorizer.

    ACLs with resource types or operations of later Kafka versions are left out.
    """
    request = DescribeAclsRequest(
        resource_type_filter=_ANY,
        resource_name_filter=None,
        pattern_type_filter=_ANY,
        principal_filter=None,
        host_filter=None,
        operation=_ANY,
        permission_type=_ANY,
    )
    answer = client.ask(request)
    if answer.error_code == ErrorCode.SECURITY_DISABLED:
        return None
    found = defaultdict[str, set[Acl]](set)
    for resource in _checked(answer).resources:
        for acl in resource.acls:
            if acl.principal.startswith(PRINCIPAL) and _is_known(resource, acl):
                found[acl.principal.removeprefix(PRINCIPAL)].add(_acl(resource, acl))
    return found


def _is_known(resource: Any, acl: Any) -> bool:
    return resource.resource_type in set(ResourceType) and acl.operation in set(AclOperation)


def _acl(resource: Any, acl: Any) -> Acl:
    kind, pattern = ResourceType(resource.resource_type), PatternType(resource.pattern_type)
    entry = AclEntry(acl.principal, acl.host, AclOperation(acl.operation), Permission(acl.permission_type))
    return Acl(AclPattern(kind, resource.resource_name, pattern), entry)


def _quotas(client: Any) -> Mapping[str, dict[str, float]]:
    """Return the quotas of each user, without quotas for pairs of user and client id, and without default quotas."""
    component = DescribeClientQuotasRequest.ComponentData(entity_type=_USER, match_type=2, match=None)
    answer = _checked(client.ask(DescribeClientQuotasRequest(components=[component], strict=True)))
    return {
        entry.entity[0].entity_name: {each.key: each.value for each in entry.values}
        for entry in answer.entries or ()
        if entry.entity[0].entity_name is not None
    }


def apply_user_steps(
    client: Any, steps: Sequence[UserStep], writing: Callable[[], AbstractContextManager[object]]
) -> dict[str, tuple[UserStep, StepRefused]]:
    """Make planned changes of users in the order of `_SENDERS`; return the refused change and its error, by user.

    If a change of a user is refused, the kinds of changes that come later in `_SENDERS` are skipped for that user. Each
    request runs in the context manager `writing()`. Raises ClusterUnreachable if no broker answers.
    """
    refused: dict[str, tuple[UserStep, StepRefused]] = {}
    with reachable():
        for kind, send in _SENDERS.items():
            due = [step for step in steps if isinstance(step, kind) and step.user not in refused]
            for request in _requests(due):
                by_user = {step.user: step for step in request}
                with writing():
                    refused |= {user: (by_user[user], error) for user, error in send(client, request)}
    return refused


def _requests(steps: Iterable[UserStep]) -> Iterator[list[UserStep]]:
    """Split changes of one kind into lists that are small enough for one request.

    A list has at most one change for a user.
    """
    request: dict[str, UserStep] = {}
    entries = 0
    for step in steps:
        size = len(step.acls) if isinstance(step, CreateAcls | DeleteAcls) else 1
        if step.user in request or (request and entries + size > ENTRIES_A_REQUEST_MAX):
            yield list(request.values())
            request, entries = {}, 0
        request[step.user] = step
        entries += size
    if request:
        yield list(request.values())


def _set_passwords(client: Any, steps: Sequence[SetPassword]) -> Failures:
    return _alter_credentials(client, [], [_upsertion(step) for step in steps])


def _upsertion(step: SetPassword) -> Any:
    made = UserScramCredentialUpsertion(step.user, _MECHANISMS[step.mechanism], step.password, salt=step.salt)
    return _AlterCredentials.ScramCredentialUpsertion(
        name=made.user,
        mechanism=int(made.mechanism),
        iterations=made.iterations,
        salt=made.salt,
        salted_password=made.salted_password,
        previous_password_ms=step.overlap_s * 1000,
    )


def _delete_passwords(client: Any, steps: Sequence[DeletePassword]) -> Failures:
    deletions = [UserScramCredentialDeletion(step.user, _MECHANISMS[step.mechanism]) for step in steps]
    gone = _alter_credentials(client, [(each.user, int(each.mechanism)) for each in deletions], [])
    return ((user, error) for user, error in gone if error.code != ErrorCode.RESOURCE_NOT_FOUND)


def _alter_credentials(client: Any, deletions: Sequence[Any], upsertions: Sequence[Any]) -> Failures:
    request = _AlterCredentials(deletions=list(deletions), upsertions=list(upsertions))
    answer = client.ask(request)
    for each in answer.results:
        if each.error_code != ErrorCode.NONE:
            yield each.user, StepRefused(each.error_code, each.error_message)


def _create_acls(client: Any, steps: Sequence[CreateAcls]) -> Failures:
    asked = [(step.user, acl) for step in steps for acl in step.acls]
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=acl.pattern.resource_type,
            resource_name=acl.pattern.name,
            resource_pattern_type=acl.pattern.pattern_type,
            principal=acl.entry.principal,
            host=acl.entry.host,
            operation=acl.entry.operation,
            permission_type=acl.entry.permission,
        )
        for _, acl in asked
    ]
    return _refusals(asked, client.ask(CreateAclsRequest(creations=creations)).results)


def _delete_acls(client: Any, steps: Sequence[DeleteAcls]) -> Failures:
    asked = [(step.user, acl) for step in steps for acl in step.acls]
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=acl.pattern.resource_type,
            resource_name_filter=acl.pattern.name,
            pattern_type_filter=acl.pattern.pattern_type,
            principal_filter=acl.entry.principal,
            host_filter=acl.entry.host,
            operation=acl.entry.operation,
            permission_type=acl.entry.permission,
        )
        for _, acl in asked
    ]
    return _refusals(asked, client.ask(DeleteAclsRequest(filters=filters)).filter_results)


def _refusals(asked: Iterable[tuple[str, Acl]], results: Iterable[Any]) -> Failures:
    for (user, _), each in zip(asked, results, strict=True):
        if each.error_code != ErrorCode.NONE:
            yield user, StepRefused(each.error_code, each.error_message)


def _set_quotas(client: Any, steps: Sequence[SetQuotas]) -> Failures:
    kind = AlterClientQuotasRequest.EntryData
    entries = [
        kind(
            entity=[kind.EntityData(entity_type=_USER, entity_name=step.user)],
            ops=[kind.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in step.changes.items()],
        )
        for step in steps
    ]
    answer = client.ask(AlterClientQuotasRequest(entries=entries, validate_only=False))
    for each in answer.entries:
        if each.error_code != ErrorCode.NONE:
            yield each.entity[0].entity_name, StepRefused(each.error_code, each.error_message)


_SENDERS: Final[Mapping[type, Callable[[Any, Any], Failures]]] = {
    DeletePassword: _delete_passwords,
    CreateAcls: _create_acls,
    DeleteAcls: _delete_acls,
    SetQuotas: _set_quotas,
    SetPassword: _set_passwords,
}
"""The function that sends the changes of each kind, in the order in which the kinds are sent.

In this order, a user that can log in never has more rights than declared.
"""


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
