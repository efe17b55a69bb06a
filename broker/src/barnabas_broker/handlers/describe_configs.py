"""DescribeConfigs (32), v1 to v4: the configs of topics, brokers, loggers and groups; v3 adds types and documentation.

Client metrics have no configs, as in a Kafka cluster where none are set.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment, check_this_broker
from barnabas_broker.metadata.controller.controller import LACKING_RECORDS, config_value, lost_in
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigResourceType
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.membership.log_ends import KnownEnds
from barnabas_broker.metadata.model import TopicDocument
from barnabas_broker.wire.decoder import STRING_BYTES_MAX
from barnabas_broker.wire.messages import DescribeConfigsRequest, DescribeConfigsResponse
from barnabas_core.config.definitions import ConfigType
from barnabas_core.config.describe import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_group,
    describe_topic,
)
from barnabas_core.config.own_definitions import STRAY_LOGS, STRAY_LOGS_NAMED_MAX, STRAY_LOGS_OFFLINE
from barnabas_core.errors import ApiError, ErrorCode

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

ResourceResult = DescribeConfigsResponse.DescribeConfigsResult
EntryResult = ResourceResult.DescribeConfigsResourceResult
SynonymResult = EntryResult.DescribeConfigsSynonym
Resource = DescribeConfigsRequest.DescribeConfigsResource


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Return for each resource either an error, or its configs.

    If the request names configs of a resource, only these are returned.
    """
    answer = AnswerInTurns(DescribeConfigsResponse, context, environment.answers)
    results = await answer.elements(("results",), request.resources, partial(_describe, environment, request))
    return DescribeConfigsResponse(results=results)


def _describe(environment: HandlerEnvironment, request: DescribeConfigsRequest, resource: Resource) -> ResourceResult:
    code, message, entries = ErrorCode.NONE, "", []
    try:
        wanted = set(resource.configuration_keys or ())
        found = _entries(environment, resource.resource_type, resource.resource_name)
        entries = [_entry(request, each) for each in found if not wanted or each.name in wanted]
    except ApiError as error:
        code, message = error.code, error.message or ""
    return ResourceResult(
        error_code=code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _entries(environment: HandlerEnvironment, resource_type: int, name: str) -> Iterable[ConfigEntry]:
    if resource_type == ConfigResourceType.TOPIC:
        document = environment.image.topics.get(name)
        if document is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return [*describe_topic(document.configs, environment.config), *_losses(environment, document)]
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
