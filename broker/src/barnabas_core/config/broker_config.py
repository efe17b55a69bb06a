"""The typed settings of a broker: dynamic configs override the file, and the file overrides Kafka's defaults."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from barnabas_core.config.broker_definitions import BROKER_CONFIGS, broker_definition
from barnabas_core.config.definitions import (
    ConfigDefinition,
    ConfigProblem,
    ConfigType,
    InvalidConfig,
    Property,
    Value,
    did_you_mean,
    parse_value,
)
from barnabas_core.config.listeners import (
    Listeners,
    ListenerSecurity,
    ListenerSettings,
    prefixed_definition,
    resolve_listeners,
)
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.config.unused import REFUSED_CONFIGS, WITHOUT_EFFECT, refusal, unused_reason
from barnabas_core.conventions import WebFiles, contradictions

Texts = Mapping[str, str]
WEB_FILES: Final = WebFiles(
    certificate="http.ssl.certificate.location", key="http.ssl.key.location", token="http.bearer.token.location"
)
"""The names of the settings for the paths of the files that protect the HTTP listener."""
_NO_SETTING: Final = "is not a setting of a broker"
_MAY_BE_SECRET: Final = ("listener.name.", "ssl.", "sasl.")
"""The prefixes of unknown settings whose values are never shown, because the setting may be a misspelt password."""
_BY_TOPIC_NAME: Final = {
    name: definition.synonyms[0].name for name, definition in TOPIC_CONFIGS.items() if definition.synonyms
}


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker's settings; each field has the name of its setting with `_` for `.`.

    Settings with synonyms are resolved: `log_retention_ms`, for example, also holds a value given in minutes or hours.
    `broker_definitions.BROKER_CONFIGS` describes the meaning, the default and the allowed values of each setting.
    """

    broker_id: int
    listeners: Listeners
    log_dirs: tuple[str, ...]
    metadata_store: str

    broker_rack: str | None
    broker_heartbeat_interval_ms: int
    broker_session_timeout_ms: int
    controlled_shutdown_enable: bool
    http_listener: str

    socket_listen_backlog_size: int
    socket_receive_buffer_bytes: int
    socket_send_buffer_bytes: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    connections_max_idle_ms: int
    connection_failed_authentication_delay_ms: int
    sasl_scram_password_overlap_max_ms: int
    sasl_mechanism_inter_broker_protocol: str
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int
    fetch_max_bytes: int
    max_request_partition_size_limit: int

    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool

    auto_create_topics_enable: bool
    delete_topic_enable: bool
    num_partitions: int
    default_replication_factor: int
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int

    replica_lag_time_max_ms: int
    replica_fetch_min_bytes: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_backoff_ms: int
    replica_socket_timeout_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_load_buffer_size: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    offsets_topic_compression_codec: int

    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_state_log_load_buffer_size: int

    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_replication_factor: int
    share_coordinator_state_topic_min_isr: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_state_topic_compression_codec: int
    share_coordinator_state_topic_prune_interval_ms: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_write_timeout_ms: int
    share_coordinator_load_buffer_size: int

    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int

    log_dirs_placement: str
    log_dirs_headroom_bytes: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_initial_task_delay_ms: int
    log_retention_check_interval_ms: int
    log_cleaner_enable: bool
    log_cleaner_backoff_ms: int
    log_cleaner_dedupe_buffer_size: int
    log_cleaner_io_buffer_load_factor: float
    log_cleaner_io_buffer_size: int
    log_cleaner_io_max_bytes_per_second: float
    log_retention_ms: int
    log_roll_ms: int
    message_max_bytes: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool

    originals: Texts
    cluster_overrides: Texts
    broker_overrides: Texts
    values: Mapping[str, Value]

    def __repr__(self) -> str:
        """Return all fields but the last four, which have passwords."""
        return f"BrokerConfig({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def value(self, name: str) -> Value:
        """Return the effective value of a setting of BROKER_CONFIGS."""
        return self.values[name]

    @property
    def web_files(self) -> WebFiles:
        """The paths of the certificate, the key and the bearer token that protect the HTTP listener."""
        return _web_files(self.values)

    def listener_security(self, name: str) -> ListenerSecurity:
        """Return the current security settings of the listener `name`."""
        texts = {**self.originals, **self.cluster_overrides, **self.broker_overrides}
        return ListenerSecurity(name, self.listeners.protocols[name], texts)

    def with_usable(self, broker_overrides: Texts, cluster_overrides: Texts) -> "UsableConfig":
        """Return the file's configs with dynamic overrides, and the problems of the overrides that are ignored.

        Overrides for this broker take precedence over those for all brokers. An override is ignored if it is invalid,
        because a newer version may have stored it, or if it contradicts the file. So no override prevents the start of
        a broker.
        """
        ignored: list[ConfigProblem] = []
        own, cluster = dict(broker_overrides), dict(cluster_overrides)
        for overrides in (own, cluster):
            ignored += [ConfigProblem(name, None, _NO_SETTING) for name in overrides if is_unknown(name)]
            refused = [name for name in overrides if name in REFUSED_CONFIGS]
            ignored += [ConfigProblem(name, overrides.pop(name), _NO_SETTING) for name in refused]
        while True:
            try:
                return UsableConfig(_build(self.originals, cluster, own), tuple(ignored))
            except InvalidConfig as error:
                problems = [_set_by(problem, own.keys() | cluster.keys()) for problem in error.problems]
            ignored += problems
            named = {problem.name for problem in problems} & (own.keys() | cluster.keys())
            # The file is valid, so an override is at fault. If no problem names an override, all overrides are ignored.
            for name in named or own.keys() | cluster.keys():
                (own if name in own else cluster).pop(name)


class UsableConfig(NamedTuple):
    """A broker's current settings, and its dynamic configs that have no effect."""

    config: BrokerConfig
    ignored: tuple[ConfigProblem, ...]


def _set_by(problem: ConfigProblem, dynamic: Collection[str]) -> ConfigProblem:
    """Return a problem of the config; name the dynamic config if it contradicts a setting in the file.

    The settings in the file are valid together, so the dynamic config is at fault.
    """
    if problem.name in dynamic:
        return problem
    partners = [name for pair in _ORDERED if problem.name in pair for name in pair if name in dynamic]
    return problem._replace(name=partners[0], value=None, allowed=str(problem)) if partners else problem


def parse_broker_config(properties: Mapping[str, str | Property]) -> BrokerConfig:
    """Parse the settings of a `server.properties`. Raise InvalidConfig with all invalid and unknown settings.

    Kafka's settings that have no effect here are accepted; `unused_settings` returns warnings about them.
    """
    originals = {name: entry if isinstance(entry, str) else entry.value for name, entry in properties.items()}
    try:
        return _build(originals, {}, {})
    except InvalidConfig as error:
        lines = {name: entry.line for name, entry in properties.items() if isinstance(entry, Property)}
        raise InvalidConfig(p._replace(line=lines.get(p.name)) for p in error.problems) from None


def is_unknown(name: str) -> bool:
    """True if neither Kafka nor this broker has a setting of this name."""
    return broker_definition(name) is None and name not in REFUSED_CONFIGS and unused_reason(name) is None


def unknown_definitions(names: Iterable[str]) -> dict[str, ConfigDefinition]:
    """Return definitions of the type UNKNOWN for those of `names` that are no settings.

    As in Kafka, clients may set them dynamically, and DescribeConfigs hides the values, which may be secrets.
    """
    unknown = (name for name in names if is_unknown(name))
    return {name: ConfigDefinition(name, ConfigType.UNKNOWN, None, None, "Not a setting.") for name in unknown}


def unused_settings(originals: Iterable[str]) -> list[str]:
    """Return a warning for each setting that has no effect, with the reason."""
    reasons = ((name, unused_reason(name) or WITHOUT_EFFECT.get(name)) for name in originals)
    return [f"{name} has no effect: {reason}" for name, reason in reasons if reason is not None]


def _build(originals: Texts, cluster: Texts, broker: Texts) -> BrokerConfig:
    problems = [problem for name, text in originals.items() for problem in _unusable(name, text)]
    values: dict[str, Value] = {}
    texts = {**originals, **cluster, **broker}
    for name, definition in BROKER_CONFIGS.items():
        try:
            values[name] = parse_value(definition, texts[name]) if name in texts else definition.default
        except InvalidConfig as error:
            problems += error.problems
            values[name] = definition.default
    problems += _unusable_of_listeners(texts)
    _fall_back(values)
    if values["broker.id"] == -1:
        values["broker.id"] = values["node.id"]
    elif "node.id" not in texts:
        values["node.id"] = values["broker.id"]
    listeners, listener_problems = resolve_listeners(_listener_settings(values, originals))
    problems += listener_problems
    problems += _contradictions(values, texts)
    if problems:
        raise InvalidConfig(problems)
    special = _special_values(values, listeners)
    plain = {name: values[name.replace("_", ".")] for name in _FIELDS if name not in special}
    sources = {"originals": originals, "cluster_overrides": cluster, "broker_overrides": broker, "values": values}
    everything: dict[str, Any] = {**plain, **special, **sources}
    return BrokerConfig(**everything)


def _unusable_of_listeners(texts: Texts) -> Iterable[ConfigProblem]:
    """Return the problems of listener settings that are invalid by themselves."""
    for name, text in texts.items():
        definition = prefixed_definition(name)
        try:
            if definition is not None:
                parse_value(definition, text)
        except InvalidConfig as error:
            yield from error.problems


def _unusable(name: str, text: str) -> Iterable[ConfigProblem]:
    why = refusal(name, text)
    if why is not None:
        yield ConfigProblem(name, text, why)
    elif is_unknown(name):
        meant = did_you_mean(name, BROKER_CONFIGS, _BY_TOPIC_NAME)
        shown = None if name.startswith(_MAY_BE_SECRET) else text
        yield ConfigProblem(name, shown, f"{_NO_SETTING}{meant}")


def _fall_back(values: dict[str, Value]) -> None:
    """Give each config without a value the value of its first synonym with a value."""
    for name, definition in BROKER_CONFIGS.items():
        if values[name] is None:
            values[name] = _synonym_value(definition, values)


def _synonym_value(definition: ConfigDefinition, values: Mapping[str, Value]) -> Value:
    for name, factor in definition.synonyms:
        value = values[name]
        if value is not None:
            # -1 means "for ever" in any unit, so it is not converted.
            return value * factor if isinstance(value, int) and value > 0 and factor != 1 else value
    return None


def _listener_settings(values: Mapping[str, Value], originals: Texts) -> ListenerSettings:
    advertised, inter_broker = values["advertised.listeners"], values["inter.broker.listener.name"]
    controllers = originals.get("controller.listener.names", "").upper().split(",")
    return ListenerSettings(
        listeners=_entries(values["listeners"]),
        advertised=None if advertised is None else _entries(advertised),
        hosts=str(values["advertised.hosts"]),
        protocol_map=str(values["listener.security.protocol.map"]),
        controller_names=tuple(name.strip() for name in controllers),
        inter_broker=None if inter_broker is None else str(inter_broker).upper(),
        inter_broker_protocol=str(values["security.inter.broker.protocol"]),
    )


def _entries(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple), "a setting of type list must have been parsed into a tuple"
    return value


def _number(value: Value) -> float:
    assert isinstance(value, int | float), "the value of a number setting is an int or float"
    return value


# Pairs of settings; the first setting must not exceed the second one.
_ORDERED: Final = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("group.share.min.session.timeout.ms", "group.share.session.timeout.ms"),
    ("group.share.session.timeout.ms", "group.share.max.session.timeout.ms"),
    ("group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"),
    ("group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    ("group.share.min.assignment.interval.ms", "group.share.assignment.interval.ms"),
    ("group.share.assignment.interval.ms", "group.share.max.assignment.interval.ms"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("broker.heartbeat.interval.ms", "broker.session.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
)

_ASSIGNORS: Final = {"consumer": "at least one of uniform, range", "share": "simple"}


def _contradictions(values: Mapping[str, Value], texts: Texts) -> Iterable[ConfigProblem]:
    """Yield the problems of configs that are each valid, but contradict each other."""
    for low, high in _ORDERED:
        if _number(values[low]) > _number(values[high]):
            yield ConfigProblem(low, str(values[low]), f"must be at most {high}={values[high]}")
    for protocol, assignors in _ASSIGNORS.items():
        session_name, heartbeat_name = (
            f"group.{protocol}.{rest}" for rest in ("session.timeout.ms", "heartbeat.interval.ms")
        )
        session, heartbeat = values[session_name], values[heartbeat_name]
        if _number(session) <= _number(heartbeat):
            yield ConfigProblem(session_name, str(session), f"must be greater than {heartbeat_name}={heartbeat}")
        if not values[f"group.{protocol}.assignors"]:
            yield ConfigProblem(f"group.{protocol}.assignors", "", f"must name {assignors}")
    queued, request = _number(values["queued.max.request.bytes"]), _number(values["socket.request.max.bytes"])
    if 0 < queued < request:
        yield ConfigProblem(
            "queued.max.request.bytes", str(queued), f"must be -1 or at least socket.request.max.bytes={request}"
        )
    if {"security.inter.broker.protocol", "inter.broker.listener.name"} <= texts.keys():
        yield ConfigProblem(
            "security.inter.broker.protocol",
            texts["security.inter.broker.protocol"],
            "must not be set together with inter.broker.listener.name",
        )
    if values["broker.id"] != values["node.id"]:
        yield ConfigProblem("broker.id", texts["broker.id"], f"must be equal to node.id={values['node.id']}")
    if not all(_entries(values["log.dirs"])) or not values["log.dirs"]:
        yield ConfigProblem(
            "log.dirs", texts.get("log.dirs", ""), "must be one or more paths separated by commas, without empty paths"
        )
    yield from (ConfigProblem(*each) for each in contradictions(_web_files(values), WEB_FILES))


def _web_files(values: Mapping[str, Value]) -> WebFiles:
    return WebFiles(*(str(values[name]) for name in WEB_FILES))


def _special_values(values: Mapping[str, Value], listeners: Listeners) -> dict[str, object]:
    """Return the fields whose value is computed, and `broker_id`, which is not named after its setting node.id."""
    log_dirs = tuple(dict.fromkeys(_entries(values["log.dirs"])))
    return {
        "broker_id": values["node.id"],
        "listeners": listeners,
        "log_dirs": log_dirs,
        "metadata_store": values["metadata.store"] or f"sqlite:///{log_dirs[0]}/metadata.sqlite",
        "max_connections_per_ip_overrides": _overrides(str(values["max.connections.per.ip.overrides"])),
    }


def _overrides(text: str) -> Mapping[str, int]:
    pairs = (entry.strip().rpartition(":") for entry in text.split(",") if entry.strip())
    return {address: int(count) for address, _, count in pairs}


_SOURCES: Final = ("originals", "cluster_overrides", "broker_overrides", "values")
_FIELDS: Final = tuple(name for name in BrokerConfig.__struct_fields__ if name not in _SOURCES)
