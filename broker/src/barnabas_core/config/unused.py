"""Kafka's settings that have no effect here, so that an existing server.properties can be used unchanged.

A setting that only tunes a missing feature is accepted with a warning. A setting that turns on a missing feature, such
as a policy, is refused.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Dynamic
from barnabas_core.config.listeners import without_prefix

_METADATA: Final = "the metadata is in metadata.store, without controller processes and a metadata log"
_ONE_LOOP: Final = "one event loop serves all connections; run more brokers to use more cores"
_OTHER_SASL: Final = "the only supported SASL mechanisms are PLAIN, SCRAM and OAUTHBEARER"
_NO_SASL_CLASSES: Final = (
    "Java classes cannot run; the keys at sasl.oauthbearer.jwks.endpoint.url verify OAUTHBEARER tokens"
)
_NO_TOKENS: Final = "brokers do not request OAUTHBEARER tokens"
_OPENSSL: Final = "TLS uses OpenSSL, not Java's security providers"
_ALL_LISTENERS: Final = "the setting applies to all listeners together"
_NO_TIERS: Final = "tiered storage is not supported"
_VERIFIED: Final = (
    "the coordinator always verifies the batch that begins a transaction, within the timeout of the produce request"
)
_NO_SHARE_GROUPS: Final = "share groups are not supported"
_NO_STREAMS_GROUPS: Final = "streams groups are not supported"
_BY_GROUP_VERSION: Final = "the feature group.version decides whether groups may use the consumer protocol"
_IN_SLICES: Final = "the group coordinator computes large assignments in slices"
_NO_QUOTAS: Final = "quotas of this kind are not supported"
_FIXED_WINDOWS: Final = "quotas are measured over 11 windows of one second, which is Kafka's default"
_HTTP_METRICS: Final = "the broker serves its metrics at /metrics of http.listener"
_NO_OLD_VERSIONS: Final = "Kafka has removed this setting; old record and request formats are not supported"
_PURGATORY: Final = "delayed requests are removed as soon as they are completed"

UNUSED_CONFIGS: Final[Mapping[str, str]] = {
    "controlled.shutdown.max.retries": _METADATA,
    "controller.listener.names": _METADATA,
    "controller.socket.timeout.ms": _METADATA,
    "early.start.listeners": _METADATA,
    "initial.broker.registration.timeout.ms": _METADATA,
    "metadata.log.dir": _METADATA,
    "server.max.startup.time.ms": _METADATA,
    "unclean.leader.election.interval.ms": _METADATA,
    "request.timeout.ms": _METADATA,
    "background.threads": _ONE_LOOP,
    "num.io.threads": _ONE_LOOP,
    "num.network.threads": _ONE_LOOP,
    "num.replica.alter.log.dirs.threads": _ONE_LOOP,
    "num.replica.fetchers": _ONE_LOOP,
    "queued.max.requests": _ONE_LOOP,
    "sasl.jaas.config": "the setting needs its prefix, as in listener.name.NAME.MECHANISM.sasl.jaas.config",
    "sasl.oauthbearer.scope": _NO_TOKENS,
    "principal.builder.class": "Java classes cannot run",
    "security.providers": _OPENSSL,
    "ssl.engine.factory.class": _OPENSSL,
    "ssl.keymanager.algorithm": _OPENSSL,
    "ssl.provider": _OPENSSL,
    "ssl.secure.random.implementation": _OPENSSL,
    "ssl.trustmanager.algorithm": _OPENSSL,
    "follower.fetch.last.tiered.offset.enable": _NO_TIERS,
    "transaction.partition.verification.enable": _VERIFIED,
    "group.coordinator.rebalance.protocols": _BY_GROUP_VERSION,
    "group.consumer.assignor.offload.enable": _IN_SLICES,
    "group.share.assignor.offload.enable": _IN_SLICES,
    "group.share.initialize.retry.interval.ms": (
        "a partition is initialized once more at the next heartbeat after a try has failed, and never before"
    ),
    "group.coordinator.append.linger.ms": "the group coordinator appends records without a delay",
    "group.coordinator.cached.buffer.max.bytes": "the group coordinator appends records without a delay",
    "share.coordinator.append.linger.ms": "the share coordinator appends records without a delay",
    "share.coordinator.cached.buffer.max.bytes": "the share coordinator appends records without a delay",
    "share.coordinator.threads": _ONE_LOOP,
    "group.coordinator.background.threads": _ONE_LOOP,
    "group.coordinator.threads": _ONE_LOOP,
    "max.incremental.fetch.session.cache.slots": "fetch sessions of consumers are not supported",
    "telemetry.max.bytes": "metrics of clients (KIP-714) are not supported",
    "auto.include.jmx.reporter": _HTTP_METRICS,
    "metric.reporters": _HTTP_METRICS,
    "delete.records.purgatory.purge.interval.requests": _PURGATORY,
    "fetch.purgatory.purge.interval.requests": _PURGATORY,
    "producer.purgatory.purge.interval.requests": _PURGATORY,
    "share.fetch.purgatory.purge.interval.requests": _PURGATORY,
    "replica.socket.receive.buffer.bytes": "the operating system sizes the socket buffers between brokers",
    "socket.connection.setup.timeout.max.ms": "replica.socket.timeout.ms also limits the time to connect",
    "socket.connection.setup.timeout.ms": "replica.socket.timeout.ms also limits the time to connect",
    "num.recovery.threads.per.data.dir": "one thread recovers all logs after a crash",
    "log.cleaner.threads": "one helper process compacts one log at a time",
    "log.dir.failure.timeout.ms": "a broker reports a failed log dir again until the controller has noted the failure",
    "port": "the ports are set in `listeners`",
    "host.name": "the hosts are set in `listeners`",
    "advertised.port": "the ports are set in `advertised.listeners`",
    "advertised.host.name": "the hosts are set in `advertised.listeners`",
    "control.plane.listener.name": _METADATA,
    "reserved.broker.max.id": "broker ids are never generated",
    "broker.id.generation.enable": "broker ids are never generated",
    "inter.broker.protocol.version": _NO_OLD_VERSIONS,
    "log.message.format.version": _NO_OLD_VERSIONS,
    "log.message.downconversion.enable": _NO_OLD_VERSIONS,
    "offsets.commit.required.acks": _NO_OLD_VERSIONS,
    "unstable.api.versions.enable": "unstable API versions are not supported",
    "unstable.feature.versions.enable": "unstable features are not supported",
}

UNUSED_PREFIXES: Final[Mapping[str, str]] = {
    "controller.performance.": _METADATA,
    "controller.quorum.": _METADATA,
    "internal.metadata.": _METADATA,
    "metadata.log.": _METADATA,
    "metadata.max.": _METADATA,
    "zookeeper.": _METADATA,
    "sasl.client.": _OTHER_SASL,
    "sasl.kerberos.": _OTHER_SASL,
    "sasl.login.": _OTHER_SASL,
    "sasl.mechanism.controller.": _METADATA,
    "sasl.oauthbearer.assertion.": _NO_TOKENS,
    "sasl.oauthbearer.client.": _NO_TOKENS,
    "sasl.oauthbearer.header.": _NO_TOKENS,
    "sasl.oauthbearer.token.": _NO_TOKENS,
    "sasl.oauthbearer.jwt.": _NO_SASL_CLASSES,
    "sasl.server.callback.": _NO_SASL_CLASSES,
    "delegation.token.": "delegation tokens are not supported",
    "password.encoder.": _NO_OLD_VERSIONS,
    "log.local.retention.": _NO_TIERS,
    "log.remote.": _NO_TIERS,
    "remote.": _NO_TIERS,
    "rlmm.": _NO_TIERS,
    "rsm.": _NO_TIERS,
    "add.partitions.to.txn.": _VERIFIED,
    "group.streams.": _NO_STREAMS_GROUPS,
    "alter.log.dirs.replication.quota.": _NO_QUOTAS,
    "controller.quota.": _FIXED_WINDOWS,
    "quota.": _FIXED_WINDOWS,
    "replication.quota.": _NO_QUOTAS,
    "kafka.metrics.": _HTTP_METRICS,
    "metrics.": _HTTP_METRICS,
}


_OF_LISTENERS: Final = ("max.connections", "max.connection.creation.rate")
"""The settings that Kafka also accepts with the prefix of a listener; with the prefix, they have no effect here."""

WITHOUT_EFFECT: Final[Mapping[str, str]] = {"log.preallocate": "segment files grow as they are written"}
"""The settings that have no effect, each with the reason why it has none.

Brokers must define these settings, because topics take their defaults from them.
"""


class Refusal(NamedTuple):
    """The values with which an unsupported setting is accepted, in lower case, and why other values are refused."""

    harmless: tuple[str, ...]
    why: str


REFUSED_CONFIGS: Final[Mapping[str, Refusal]] = {
    "process.roles": Refusal(
        ("", "broker", "broker,controller", "controller,broker"),
        "must contain broker, because separate controllers are not supported",
    ),
    "create.topic.policy.class.name": Refusal(("",), "must be empty, because Java policy classes are not supported"),
    "alter.config.policy.class.name": Refusal(("",), "must be empty, because Java policy classes are not supported"),
    "group.share.persister.class.name": Refusal(
        ("", "org.apache.kafka.server.share.persister.defaultstatepersister"),
        "must be empty, because Java classes are not supported",
    ),
    "group.share.dlq.manager.class.name": Refusal(
        ("", "org.apache.kafka.server.share.dlq.defaultsharegroupdlqmanager"),
        "must be empty, because Java classes are not supported",
    ),
    "client.quota.callback.class": Refusal(("",), "must be empty, because Java classes are not supported"),
    "replica.selector.class": Refusal(("",), "must be empty, because consumers read only from leaders"),
    "config.providers": Refusal(
        ("",), "must be empty, because references to config providers work only in the file with which a broker starts"
    ),
    "cordoned.log.dirs": Refusal(("",), "must be empty, because log dirs cannot be cordoned"),
    "remote.log.storage.system.enable": Refusal(("false",), "must be false, because tiered storage is not supported"),
    "transaction.two.phase.commit.enable": Refusal(
        ("false",), "must be false, because two-phase commit (KIP-939) is not supported"
    ),
}


def unused_reason(name: str) -> str | None:
    """Return why Kafka's setting `name` has no effect here; None for a setting that is used, refused or unknown."""
    config = without_prefix(name)
    if config is not None and name.split(".", 3)[3] != config:
        return None  # A setting of a SASL mechanism always has an effect.
    if config is not None:
        return _ALL_LISTENERS if config in _OF_LISTENERS else _reason(config) or _reason(config.partition(".")[2])
    return _reason(name)


def _reason(name: str) -> str | None:
    exact = UNUSED_CONFIGS.get(name)
    if exact is not None:
        return exact
    return next((reason for prefix, reason in UNUSED_PREFIXES.items() if name.startswith(prefix)), None)


def unused_definitions(names: Iterable[str]) -> dict[str, ConfigDefinition]:
    """Return definitions of the type STRING for those of `names` that have no effect.

    The definitions allow clients to set and describe these settings.
    """
    reasons = ((name, unused_reason(name)) for name in names)
    return {
        name: ConfigDefinition(name, ConfigType.STRING, None, None, f"No effect: {reason}.", Dynamic.CLUSTER_WIDE)
        for name, reason in reasons
        if reason is not None
    }


def refusal(name: str, value: str) -> str | None:
    """Return why `value` is refused, because it would have no effect; None if it is allowed."""
    rule = REFUSED_CONFIGS.get(name)
    if rule is None or value.replace(" ", "").lower() in rule.harmless:
        return None
    return rule.why
