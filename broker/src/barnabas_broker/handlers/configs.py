"""The requests that describe, list and change the configs of topics, brokers, loggers and groups.

DescribeConfigs (32), v1 to v4: the configs of topics, brokers, loggers and groups; v3 adds types and documentation.
Client metrics have no configs, as in a Kafka cluster where none are set.

ListConfigResources (74), v0 to v1: lists resources that have configs (KIP-1142); v0 lists only client metrics.

IncrementalAlterConfigs (44), v0 to v1: sets, deletes, appends to and subtracts from single configs (KIP-339). The
resources are topics, brokers, groups, and the loggers of this broker (KIP-412).

AlterConfigs (33), v0 to v2: replaces all configs of each resource.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from barnabas_broker.handlers.channel import AnswerInTurns, RequestContext, error_fields
from barnabas_broker.handlers.handler_environment import HandlerEnvironment, check_this_broker
from barnabas_broker.metadata.controller.controller import LACKING_RECORDS, config_value, lost_in
from barnabas_broker.metadata.controller.decisions.alter_configs import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
)
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.membership.log_ends import KnownEnds
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable
from barnabas_broker.wire.decoder import STRING_BYTES_MAX
from barnabas_broker.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from barnabas_core.config.broker_definitions import STRAY_LOGS, STRAY_LOGS_NAMED_MAX, STRAY_LOGS_OFFLINE
from barnabas_core.config.definitions import ConfigType, InvalidConfig
from barnabas_core.config.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_group,
    describe_topic,
)
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn

STRAY_LOGS_TEXT: Final = (
    "The directories and sizes (DIRECTORY:BYTES) of the logs that are not served because the metadata does not have "
    "their topics. To serve these logs again, restore the metadata of their topics. If nobody needs the logs, remove "
    "their directories."
)
STRAY_LOGS_OFFLINE_TEXT: Final = (
    "The offline log dirs that had stray logs (logs whose topics are not in the metadata) when they went offline. "
    "barnabas.stray.logs lists these stray logs until the log dir is online again or the broker restarts."
)

NAMED: Final[Mapping[int, str]] = {
    ConfigResourceType.CLIENT_METRICS: "Client metrics subscription",
    ConfigResourceType.GROUP: "Group",
}
"""The resource types without a default resource, with the names that Kafka's error messages use."""

SAME_CONFIGS_KEPT: Final = 16
"""The maximum number of different topic configs that one response describes only once."""
_DescribedTopic = Callable[[tuple[tuple[str, str], ...]], Sequence[ConfigEntry]]

DescribedResource = DescribeConfigsResponse.DescribeConfigsResult
EntryResult = DescribedResource.DescribeConfigsResourceResult
SynonymResult = EntryResult.DescribeConfigsSynonym
ResourceToDescribe = DescribeConfigsRequest.DescribeConfigsResource


async def describe_configs(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Return for each resource either an error, or its configs.

    If the request names configs of a resource, only these are returned.
    """
    answer = AnswerInTurns(DescribeConfigsResponse, context, environment.answers)
    config = environment.config
    topics = lru_cache(SAME_CONFIGS_KEPT)(lambda overrides: describe_topic(dict(overrides), config))
    described = partial(_describe, environment, request, topics)
    results = await answer.elements(("results",), request.resources, described)
    return DescribeConfigsResponse(results=results)


def _describe(
    environment: HandlerEnvironment,
    request: DescribeConfigsRequest,
    topics: _DescribedTopic,
    resource: ResourceToDescribe,
) -> DescribedResource:
    code, message, entries = ErrorCode.NONE, "", []
    try:
        wanted = set(resource.configuration_keys or ())
        found = _entries(environment, topics, resource.resource_type, resource.resource_name)
        entries = [_entry(request, each) for each in found if not wanted or each.name in wanted]
    except ApiError as error:
        code, message = error.code, error.message or ""
    return DescribedResource(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _entries(
    environment: HandlerEnvironment, topics: _DescribedTopic, resource_type: int, name: str
) -> Iterable[ConfigEntry]:
    if resource_type == ConfigResourceType.TOPIC:
        document = environment.image.topics.get(name)
        if document is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return [*topics(tuple(document.configs.items())), *_losses(environment, document)]
    if resource_type == ConfigResourceType.BROKER:
        if name == ALL_BROKERS:
            return _of_all_brokers(environment)
        if name == str(environment.broker_id):
            return [*describe_broker(environment.config), *_stray_logs(environment)]
        allowed = f"the name must be {environment.broker_id}, the id of this broker, or empty for all brokers"
        raise ApiError(ErrorCode.INVALID_REQUEST, f"broker {name}: {allowed}")
    if resource_type == ConfigResourceType.BROKER_LOGGER:
        check_this_broker(name, environment.broker_id)
        return [_logger(*each) for each in environment.loggers.levels().items()]
    if resource_type in NAMED:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{NAMED[resource_type]} name must not be empty")
        if resource_type == ConfigResourceType.CLIENT_METRICS:
            return ()
        return describe_group(environment.image.group_configs.get(name, {}), environment.config)
    allowed = "allowed are topics (2), brokers (4), broker loggers (8), client metrics (16) and groups (32)"
    raise ApiError(ErrorCode.INVALID_REQUEST, f"resource type {resource_type} is unknown; {allowed}")


def _logger(name: str, level: str) -> ConfigEntry:
    return ConfigEntry(
        name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, ConfigType.UNKNOWN, False, False, (), "The logger's level."
    )


def _stray_logs(environment: HandlerEnvironment) -> Iterable[ConfigEntry]:
    """Yield a read-only config with this broker's stray logs, and one with the offline log dirs that have stray logs.

    A config without values is left out.
    """
    strays = environment.logs.strays
    named = sorted(f"{each.directory}:{each.size_bytes}" for each in strays)
    yield from _report(STRAY_LOGS, named[:STRAY_LOGS_NAMED_MAX], STRAY_LOGS_TEXT)
    holders = {each.log_dir for each in strays}
    offline = [each.path for each in environment.logs.log_dirs if not each.is_online and each.path in holders]
    yield from _report(STRAY_LOGS_OFFLINE, offline, STRAY_LOGS_OFFLINE_TEXT)


def _report(name: str, values: Sequence[str], text: str) -> Iterable[ConfigEntry]:
    """Yield a config with as many of the values as fit into a string."""
    ends = accumulate(len(each.encode()) + 1 for each in values)
    fitting = [each for each, end in zip(values, ends, strict=True) if end <= STRING_BYTES_MAX]
    if fitting:
        value, source = ",".join(fitting), ConfigSource.STATIC_BROKER
        synonym = ConfigSynonym(name, value, source)
        yield ConfigEntry(name, value, source, ConfigType.LIST, True, False, (synonym,), text)


def _losses(environment: HandlerEnvironment, topic: TopicDocument) -> Iterable[ConfigEntry]:
    """Yield a read-only config with the topic's partitions that have lost committed records, if there are any."""
    lost = lost_in(topic, KnownEnds(environment.image))
    if lost:
        yield ConfigEntry(
            name=LACKING_RECORDS,
            value=config_value(lost),
            source=ConfigSource.DEFAULT,
            type=ConfigType.STRING,
            read_only=True,
            sensitive=False,
            synonyms=(),
            documentation="The partitions that are offline because every replica lacks committed records, with the "
            "replicas' log ends.",
        )


def _of_all_brokers(environment: HandlerEnvironment) -> Iterable[ConfigEntry]:
    """Return the dynamic configs that are set for all brokers.

    The configs in this broker's properties file are left out, because other brokers' files may differ.
    """
    return [
        entry._replace(source=ConfigSource.DYNAMIC_DEFAULT_BROKER, value=synonym.value, synonyms=(synonym,))
        for entry in describe_broker(environment.config)
        for synonym in entry.synonyms
        if synonym.source is ConfigSource.DYNAMIC_DEFAULT_BROKER and synonym.name == entry.name
    ]


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> EntryResult:
    """Return the config; a value that no string of the protocol holds, as of a broker's file, is null."""
    synonyms = [
        SynonymResult(name=name, value=_if_it_fits(value), source=source) for name, value, source in entry.synonyms
    ]
    return EntryResult(
        name=entry.name,
        value=_if_it_fits(entry.value),
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=synonyms if request.include_synonyms else [],
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
    )


def _if_it_fits(value: str | None) -> str | None:
    return None if value is not None and len(value.encode()) > STRING_BYTES_MAX else value


ListedResource = ListConfigResourcesResponse.ConfigResource


def list_config_resources(
    environment: HandlerEnvironment, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List topics, brokers, broker loggers and groups with configs, or those that have a requested resource type.

    A request with an unknown resource type gets the error UNSUPPORTED_VERSION.
    """
    kinds = {int(kind) for kind in ConfigResourceType}
    asked = (
        set(request.resource_types or kinds) if context.api_version >= 1 else {int(ConfigResourceType.CLIENT_METRICS)}
    )
    if not asked <= kinds:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    brokers = [str(broker) for broker in environment.image.brokers]
    names = {
        ConfigResourceType.TOPIC: list(environment.image.topics),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
        ConfigResourceType.GROUP: list(environment.image.group_configs),
    }
    resources = [
        ListedResource(resource_name=name, resource_type=kind)
        for kind, of_kind in names.items()
        if kind in asked
        for name in of_kind
    ]
    return ListConfigResourcesResponse(config_resources=resources)


CONFIGS_MAX: Final = 1_000
"""The maximum number of configs of one resource in a request, because a resource is changed in one turn of the loop."""
_LISTENER_PREFIX: Final = "listener.name."


def _resource(kind: int, name: str, earlier: Collection[ConfigResource]) -> ConfigResource:
    """Return the resource with this type and name. Raises ApiError if the type is unknown, or for a repeated one."""
    if kind not in {int(known) for known in ConfigResourceType}:
        message = (
            f"resource type {kind} is invalid; allowed are topics (2), brokers (4), broker loggers (8) and groups (32)"
        )
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    resource = ConfigResource(ConfigResourceType(kind), name)
    if resource in earlier:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{resource.type.name} {name} is in the request twice")
    return resource


async def _alter(
    environment: HandlerEnvironment,
    turn: FairTurn,
    wanted: Mapping[ConfigResource, list[ConfigChange]],
    *,
    replaces: bool,
    validate_only: bool,
) -> dict[ConfigResource, ApiError | None]:
    """Change log levels on this broker, and all other configs in the metadata store; return the errors."""
    outcomes: dict[ConfigResource, ApiError | None] = {}
    accepted: dict[ConfigResource, list[ConfigChange]] = {}
    async for resource, changes in turn.along(wanted.items()):
        try:
            if resource.type is ConfigResourceType.BROKER_LOGGER and not replaces:
                check_this_broker(resource.name, environment.broker_id)
                environment.loggers.alter(changes, validate_only=validate_only)
                outcomes[resource] = None
            else:
                accepted[resource] = await _prepared(environment, resource, changes, replaces=replaces)
        except ApiError as error:
            outcomes[resource] = error
    writer = environment.metadata_writer
    if replaces:
        configs = {
            each: {change.name: change.value for change in changes}
            async for each, changes in turn.along(accepted.items())
        }
        return outcomes | await writer.replace_configs(configs, validate_only=validate_only)
    return outcomes | await writer.alter_configs(accepted, validate_only=validate_only)


async def _prepared(
    environment: HandlerEnvironment, resource: ConfigResource, changes: list[ConfigChange], *, replaces: bool
) -> list[ConfigChange]:
    """Return the changes with encrypted passwords, if the resource is a broker.

    Raises ApiError if the encryption key cannot be read, or if this broker cannot use the certificates of its new
    configs. Configs of other brokers are not checked, because this broker cannot read their certificate files.
    """
    config, check, passwords = environment.config, environment.check_certificates, environment.passwords
    if resource.type is not ConfigResourceType.BROKER:
        return changes
    names = [*(change.name for change in changes), *(config.broker_overrides if replaces else ())]
    try:
        is_own = resource.name == str(environment.broker_id)
        if check is not None and is_own and any(name.startswith(_LISTENER_PREFIX) for name in names):
            own = _changed({} if replaces else config.broker_overrides, changes)
            await check(config.with_usable(own, config.cluster_overrides).config)
        if passwords is None:
            return changes
        texts = await passwords.sealed(resource.name, {change.name: change.value for change in changes})
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except StoreUnavailable as error:
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)) from error
    return [replace(change, value=texts[change.name]) for change in changes]


def _changed(overrides: Mapping[str, str], changes: list[ConfigChange]) -> dict[str, str]:
    """Return the overrides after the changes; APPEND and SUBTRACT are treated as SET."""
    after = {**overrides, **{each.name: each.value for each in changes if each.operation is not ConfigOperation.DELETE}}
    removed = {each.name for each in changes if each.operation is ConfigOperation.DELETE}
    return {name: text for name, text in after.items() if text is not None and name not in removed}


AlterResponseT = TypeVar("AlterResponseT", AlterConfigsResponse, IncrementalAlterConfigsResponse)


async def incremental_alter_configs(
    environment: HandlerEnvironment, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change the configs, or only check the changes with validate_only; return an error code for each resource.

    If one change of a resource is invalid, no config of that resource changes.
    """
    return await _alter_all(environment, context, request, IncrementalAlterConfigsResponse)


async def alter_configs(
    environment: HandlerEnvironment, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the configs, or only check them with validate_only; return an error code for each resource."""
    return await _alter_all(environment, context, request, AlterConfigsResponse)


async def _alter_all(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: AlterConfigsRequest | IncrementalAlterConfigsRequest,
    response: type[AlterResponseT],
) -> AlterResponseT:
    """Change the configs of all valid resources. AlterConfigs removes all configs that the request does not name."""
    answer = AnswerInTurns(response, context, environment.answers)
    wanted: dict[ConfigResource, list[ConfigChange]] = {}
    read: list[ConfigResource | ApiError] = []
    async for each in answer.over(request.resources):
        try:
            resource = _resource(each.resource_type, each.resource_name, wanted)
            wanted[resource] = await _changes(answer, each.configs)
            read.append(resource)
        except ApiError as error:
            read.append(error)
    replaces, only_checks = isinstance(request, AlterConfigsRequest), request.validate_only
    errors = await _alter(environment, answer.turn, wanted, replaces=replaces, validate_only=only_checks)
    results = [
        response.AlterConfigsResourceResponse(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            **error_fields(found if isinstance(found, ApiError) else errors[found]),
        )
        async for each, found in answer.over(list(zip(request.resources, read, strict=True)))
    ]
    return response(responses=results)


async def _changes(answer: AnswerInTurns, configs: Sequence[Any]) -> list[ConfigChange]:
    """Return the changes of a resource. Raises ApiError if there are too many, or if one of them is invalid."""
    if len(configs) > CONFIGS_MAX:
        message = f"a resource has {len(configs)} configs in the request; at most {CONFIGS_MAX} are allowed"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    known, changes = {int(operation) for operation in ConfigOperation}, []
    async for each in answer.over(configs):
        # Only IncrementalAlterConfigs has operations.
        operation = getattr(each, "config_operation", ConfigOperation.SET)
        if operation not in known:
            message = (
                f"config operation {operation} of {each.name} is unknown; allowed are {sorted(known)} "
                "(set, delete, append, subtract)"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        changes.append(ConfigChange(each.name, ConfigOperation(operation), each.value))
    return changes
