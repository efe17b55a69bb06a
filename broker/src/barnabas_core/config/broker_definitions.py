"""The definitions of broker settings for identity, sockets, topics, groups, transactions and replicas.

`topic_definitions` defines the settings of logs; `BROKER_CONFIGS` contains all of them. Names, types and defaults are
those of Kafka 4. `OWN_CONFIGS` has our own settings, and `unused` has Kafka's settings that have no effect here.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import (
    INT_MAX,
    LONG_MAX,
    ConfigDefinition,
    ConfigType,
    Dynamic,
    OneOf,
    Pattern,
    Range,
    table,
)
from barnabas_core.config.listeners import LISTENER_CONFIGS, PROTOCOL_NAMES, prefixed_definition
from barnabas_core.config.security_definitions import ACCESS_CONTROL, SASL_BROKER_CONFIGS
from barnabas_core.config.share_definitions import SHARE_CONFIGS
from barnabas_core.config.topic_definitions import LOG_CONFIGS

_D = ConfigDefinition
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_STORE: Final = rf"(sqlite:///.+|kubernetes://{_DNS_LABEL}/{_DNS_LABEL})?"

OWN_CONFIGS: Final = (
    _D(
        "metadata.store",
        ConfigType.STRING,
        "",
        Pattern(_STORE, "sqlite:///PATH or kubernetes://NAMESPACE/CLUSTER"),
        "The metadata store, which all brokers of a cluster share; by default a SQLite file in the first log dir.",
    ),
    _D(
        "cluster.id",
        ConfigType.STRING,
        "",
        Pattern(r"([A-Za-z0-9_-]{22})?", "22 characters, as `kafka-storage.sh random-uuid` prints them"),
        "The cluster id of a new cluster; by default a random one. A cluster never changes its id.",
    ),
    _D(
        "log.dirs.placement",
        ConfigType.STRING,
        "fewest-partitions",
        OneOf(("fewest-partitions", "least-bytes")),
        "The log dir of a new partition: the one with the fewest partitions, as in Kafka, or the fewest bytes.",
    ),
    _D(
        "log.dirs.headroom.bytes",
        ConfigType.LONG,
        1024**3,
        Range(0),
        "The free bytes that a log dir needs to get new partitions with log.dirs.placement=least-bytes. The limit is "
        "ignored if all log dirs have less.",
    ),
    _D(
        "advertised.hosts",
        ConfigType.STRING,
        "",
        Pattern(r"\s*([^,:\s]+:[^,\s]+\s*(,\s*[^,:\s]+:[^,\s]+\s*)*)?", "LISTENER:HOST separated by commas"),
        "The hosts to advertise for the named listeners, instead of their hosts in advertised.listeners.",
        Dynamic.PER_BROKER,
    ),
    _D(
        "http.listener",
        ConfigType.STRING,
        "",
        Pattern(r"(.*:[0-9]{1,5})?", "HOST:PORT"),
        "The address of /metrics, /healthz, /startupz and /readyz; empty means none, and port 0 any free port.",
    ),
    _D(
        "http.ssl.certificate.location",
        ConfigType.STRING,
        "",
        None,
        "The PEM file with the certificate and its chain for TLS at http.listener; it is read again when it changes.",
    ),
    _D(
        "http.ssl.key.location",
        ConfigType.STRING,
        "",
        None,
        "The PEM file with the private key for TLS at http.listener; by default the key is in the file of "
        "http.ssl.certificate.location.",
    ),
    _D(
        "http.bearer.token.location",
        ConfigType.STRING,
        "",
        None,
        "The file with the bearer token that clients of /metrics must send; allowed only with TLS at http.listener. "
        "The file is read again when it changes.",
    ),
)


STRAY_LOGS: Final = "barnabas.stray.logs"
"""The name under which DescribeConfigs of a broker lists stray logs, as `DIRECTORY:BYTES` separated by commas.

The name is not a config, and is absent if the broker has no stray logs.
"""

STRAY_LOGS_OFFLINE: Final = "barnabas.stray.logs.offline"
"""The name under which DescribeConfigs of a broker lists offline log dirs with stray logs, separated by commas.

The name is not a config, and is absent if no offline log dir has stray logs.
"""

STRAY_LOGS_NAMED_MAX: Final = 1_000
"""The maximum number of stray logs that DescribeConfigs lists, even if the broker has more."""


def parse_stray_logs(value: str) -> list[tuple[str, int]]:
    """Parse the value of STRAY_LOGS; return the directory and the size in bytes of each stray log."""
    pairs = [each.rpartition(":") for each in value.split(",") if each]
    return [(directory, int(size_bytes)) for directory, _, size_bytes in pairs]


_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_STRING, _LIST, _SHORT = ConfigType.STRING, ConfigType.LIST, ConfigType.SHORT
_CLUSTER: Final = Dynamic.CLUSTER_WIDE
_ANY_MS: Final = Range(0)
_POSITIVE: Final = Range(1)
_COUNT: Final = Range(0)
_REPLICATION_FACTOR: Final = Range(1, 32767)

_IDENTITY: Final = (
    _D("node.id", _INT, 0, Range(0), "The id of this broker, which must be unique in the cluster."),
    _D("broker.id", _INT, -1, Range(0, None, also=(-1,)), "The old name of node.id; both must have the same value."),
    _D(
        "broker.rack",
        _STRING,
        None,
        None,
        "The rack of this broker. The replicas of a partition are spread over the racks.",
        Dynamic.PER_BROKER,
    ),
    _D(
        "broker.heartbeat.interval.ms",
        _INT,
        2000,
        _POSITIVE,
        "The interval in milliseconds at which a broker renews the lease that shows that the broker is alive.",
    ),
    _D(
        "broker.session.timeout.ms",
        _INT,
        9000,
        _POSITIVE,
        "The duration of a broker's lease in milliseconds. A broker that does not renew its lease in time is fenced.",
    ),
    _D("controlled.shutdown.enable", _BOOLEAN, True, None, "Whether a broker hands over leadership before it stops."),
)

_SOCKETS: Final = (
    _D(
        "listeners",
        _LIST,
        ("PLAINTEXT://:9092",),
        Pattern(r"[^/]+://.*:-?[0-9]+", "each entry NAME://HOST:PORT"),
        "The addresses on which the broker listens. An empty host means every interface, and port 0 any free port.",
    ),
    _D(
        "advertised.listeners",
        _LIST,
        None,
        Pattern(r"[^/]+://.*:-?[0-9]+", "each entry NAME://HOST:PORT"),
        "The addresses at which clients reach the broker, if they differ from the addresses in listeners.",
    ),
    _D(
        "listener.security.protocol.map",
        _STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        None,
        "The security protocol of each listener, as NAME:PROTOCOL separated by commas.",
    ),
    _D(
        "inter.broker.listener.name",
        _STRING,
        None,
        None,
        "The listener for connections between brokers; by default the first one with security.inter.broker.protocol.",
    ),
    _D(
        "security.inter.broker.protocol",
        _STRING,
        "PLAINTEXT",
        OneOf(PROTOCOL_NAMES),
        "The security protocol of the listener between brokers, unless inter.broker.listener.name names the listener.",
    ),
    _D(
        "socket.listen.backlog.size",
        _INT,
        4096,
        _POSITIVE,
        "The maximum accept queue of a listener; values below 4096 count as 4096 (Kafka's default: 50).",
    ),
    _D(
        "socket.receive.buffer.bytes",
        _INT,
        -1,
        Range(1, None, also=(-1,)),
        "The receive buffer of sockets (SO_RCVBUF); -1 means the system's size (Kafka's default: 102400).",
    ),
    _D(
        "socket.send.buffer.bytes",
        _INT,
        -1,
        Range(1, None, also=(-1,)),
        "The send buffer of sockets (SO_SNDBUF); -1 means the system's size (Kafka's default: 102400).",
    ),
    _D(
        "socket.request.max.bytes",
        _INT,
        104857600,
        _POSITIVE,
        "The maximum size of a request in bytes. The broker closes a connection that announces a larger request.",
    ),
    _D(
        "queued.max.request.bytes",
        _LONG,
        -1,
        Range(1, None, also=(-1,)),
        "The bytes of requests in memory at which the broker reads no more requests; -1 means no limit.",
    ),
    _D("connections.max.idle.ms", _LONG, 600000, Range(-1), "The maximum idle ms of a connection; -1 means no limit."),
    _D(
        "max.connections",
        _INT,
        INT_MAX,
        _COUNT,
        "The maximum number of open connections of this broker; by default as many as the limit of open files allows.",
        _CLUSTER,
    ),
    _D("max.connections.per.ip", _INT, INT_MAX, _COUNT, "The maximum number of connections per IP address.", _CLUSTER),
    _D(
        "max.connections.per.ip.overrides",
        _STRING,
        "",
        Pattern(r"\s*([^,\s]+:[0-9]{1,10}\s*(,\s*[^,\s]+:[0-9]{1,10}\s*)*)?", "ADDRESS:COUNT separated by commas"),
        "The maximum number of open connections from each listed address; it overrides max.connections.per.ip.",
        _CLUSTER,
    ),
    _D(
        "max.connection.creation.rate",
        _INT,
        INT_MAX,
        _COUNT,
        "The maximum number of connections that the broker accepts per second.",
        _CLUSTER,
    ),
    _D("fetch.max.bytes", _INT, 57671680, Range(1024), "The maximum size of a fetch response in bytes."),
    _D(
        "max.request.partition.size.limit",
        _INT,
        2000,
        _POSITIVE,
        "The maximum number of partitions in a DescribeTopicPartitions response.",
    ),
)

_TOPICS: Final = (
    _D("auto.create.topics.enable", _BOOLEAN, True, None, "Whether a request for an unknown topic creates the topic."),
    _D("delete.topic.enable", _BOOLEAN, True, None, "Whether topics can be deleted."),
    _D("num.partitions", _INT, 1, _POSITIVE, "The number of partitions of a topic whose creator gives no number."),
    _D(
        "default.replication.factor",
        _INT,
        1,
        _REPLICATION_FACTOR,
        "The replication factor of a new topic whose creator gives none.",
    ),
    _D(
        "auto.leader.rebalance.enable",
        _BOOLEAN,
        True,
        None,
        "Whether the controller periodically moves leadership back to preferred replicas.",
    ),
    _D(
        "leader.imbalance.check.interval.seconds",
        _LONG,
        300,
        _POSITIVE,
        "The interval in seconds at which the controller elects preferred leaders.",
    ),
)

_REPLICAS: Final = (
    _D(
        "replica.lag.time.max.ms",
        _LONG,
        30000,
        _POSITIVE,
        "The time in milliseconds after which a replica that has not caught up is removed from the ISR.",
    ),
    _D("replica.fetch.min.bytes", _INT, 1, _COUNT, "The minimum number of bytes that a follower's fetch waits for."),
    _D("replica.fetch.max.bytes", _INT, 1048576, _COUNT, "The maximum bytes of a partition in a follower's fetch."),
    _D(
        "replica.fetch.response.max.bytes",
        _INT,
        10485760,
        _COUNT,
        "The maximum size in bytes of the response to a follower's fetch.",
    ),
    _D("replica.fetch.wait.max.ms", _INT, 500, _ANY_MS, "The maximum time in ms that a follower's fetch waits."),
    _D("replica.fetch.backoff.ms", _INT, 1000, _ANY_MS, "The time in ms that a follower waits after a failed fetch."),
    _D("replica.socket.timeout.ms", _INT, 30000, _POSITIVE, "The timeout in ms of a follower's requests to leaders."),
    _D(
        "leader.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        _COUNT,
        "The maximum bytes per second that the leaders on a broker send to throttled replicas outside the ISR.",
        _CLUSTER,
    ),
    _D(
        "follower.replication.throttled.rate",
        _LONG,
        LONG_MAX,
        _COUNT,
        "The maximum bytes per second that throttled replicas on a broker fetch while they are outside the ISR.",
        _CLUSTER,
    ),
    _D(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        _LONG,
        LONG_MAX,
        _COUNT,
        "The maximum bytes per second that the broker copies to move replicas between its log dirs.",
        _CLUSTER,
    ),
    _D(
        "replica.high.watermark.checkpoint.interval.ms",
        _LONG,
        5000,
        _POSITIVE,
        "The interval in milliseconds at which high watermarks are written to their checkpoint.",
    ),
)

_CONSUMER_GROUPS: Final = (
    _D(
        "group.consumer.session.timeout.ms",
        _INT,
        45000,
        _POSITIVE,
        "The time in milliseconds without a heartbeat after which a group of the consumer protocol removes a member.",
    ),
    _D("group.consumer.min.session.timeout.ms", _INT, 45000, _POSITIVE, "The shortest session timeout of a group."),
    _D("group.consumer.max.session.timeout.ms", _INT, 60000, _POSITIVE, "The longest session timeout of a group."),
    _D(
        "group.consumer.heartbeat.interval.ms",
        _INT,
        5000,
        _POSITIVE,
        "The interval in milliseconds at which members of the consumer protocol send heartbeats.",
    ),
    _D(
        "group.consumer.min.heartbeat.interval.ms", _INT, 5000, _POSITIVE, "The shortest heartbeat interval of a group."
    ),
    _D(
        "group.consumer.max.heartbeat.interval.ms", _INT, 15000, _POSITIVE, "The longest heartbeat interval of a group."
    ),
    _D(
        "group.consumer.assignment.interval.ms",
        _INT,
        0,
        _ANY_MS,
        "The shortest time in milliseconds between two assignments of a group of the consumer protocol.",
    ),
    _D("group.consumer.min.assignment.interval.ms", _INT, 0, _ANY_MS, "The shortest assignment interval of a group."),
    _D(
        "group.consumer.max.assignment.interval.ms", _INT, 15000, _ANY_MS, "The longest assignment interval of a group."
    ),
    _D(
        "group.consumer.max.size",
        _INT,
        INT_MAX,
        _POSITIVE,
        "The maximum number of members of a group of the consumer protocol.",
    ),
    _D(
        "group.consumer.assignors",
        _LIST,
        ("uniform", "range"),
        OneOf(("uniform", "range")),
        "The assignors of the consumer protocol. The first one is that of groups whose members name none.",
    ),
    _D(
        "group.consumer.regex.refresh.interval.ms",
        _INT,
        600000,
        Range(10000),
        "The interval in milliseconds at which the regular expressions of members are matched with all topics again.",
    ),
    _D(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        Pattern(
            "(?i:bidirectional|upgrade|downgrade|disabled)", "one of bidirectional, upgrade, downgrade and disabled"
        ),
        "Whether a group with members may change to the consumer protocol (upgrade), back (downgrade), or both.",
    ),
)

_GROUPS: Final = (
    _D("group.min.session.timeout.ms", _INT, 6000, _POSITIVE, "The shortest allowed session timeout in ms."),
    _D("group.max.session.timeout.ms", _INT, 1800000, _POSITIVE, "The longest allowed session timeout in ms."),
    _D(
        "group.initial.rebalance.delay.ms",
        _INT,
        3000,
        _ANY_MS,
        "The time in milliseconds that the first rebalance of an empty group waits for more members.",
    ),
    _D("group.max.size", _INT, INT_MAX, _POSITIVE, "The maximum number of members of a group."),
    *_CONSUMER_GROUPS,
    _D("offset.metadata.max.bytes", _INT, 4096, _COUNT, "The maximum size of a committed offset's metadata in bytes."),
    _D(
        "offsets.commit.timeout.ms",
        _INT,
        5000,
        _POSITIVE,
        "The time in milliseconds that an offset commit waits until all in-sync replicas have its records.",
    ),
    _D(
        "offsets.load.buffer.size",
        _INT,
        5242880,
        _POSITIVE,
        "The number of bytes that a group coordinator reads at once while it loads a partition.",
    ),
    _D("offsets.retention.minutes", _INT, 10080, _POSITIVE, "The minutes that a group without members keeps offsets."),
    _D("offsets.retention.check.interval.ms", _LONG, 600000, _POSITIVE, "The ms between removals of expired offsets."),
    _D(
        "offsets.topic.num.partitions",
        _INT,
        50,
        _POSITIVE,
        "The number of partitions of __consumer_offsets. The setting is used only when the topic is created.",
    ),
    _D(
        "offsets.topic.replication.factor",
        _SHORT,
        3,
        _REPLICATION_FACTOR,
        "The replication factor of __consumer_offsets. The topic is created only when at least this number of "
        "brokers is registered.",
    ),
    _D("offsets.topic.segment.bytes", _INT, 104857600, Range(1048576), "The bytes of a segment of __consumer_offsets."),
    _D(
        "offsets.topic.compression.codec",
        _INT,
        0,
        Range(0, 4),
        "The codec of the batches in __consumer_offsets: 0 is none, 1 gzip, 2 snappy, 3 lz4 and 4 zstd.",
    ),
)

_PRODUCERS: Final = (
    _D(
        "producer.id.expiration.ms",
        _INT,
        86400000,
        _POSITIVE,
        "The time in milliseconds for which a partition keeps the state of an idle idempotent producer.",
        _CLUSTER,
    ),
    _D(
        "producer.id.expiration.check.interval.ms",
        _INT,
        600000,
        _POSITIVE,
        "The interval in milliseconds at which the state of expired producers is removed.",
    ),
)

_TRANSACTIONS: Final = (
    _D("transaction.max.timeout.ms", _INT, 900000, _POSITIVE, "The maximum transaction timeout of a producer in ms."),
    _D("transactional.id.expiration.ms", _INT, 604800000, _POSITIVE, "The ms that an unused transactional id is kept."),
    _D(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _INT,
        10000,
        _POSITIVE,
        "The interval in milliseconds at which the coordinator aborts transactions that have timed out.",
    ),
    _D(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _INT,
        3600000,
        _POSITIVE,
        "The interval in milliseconds at which the coordinator removes expired transactional ids.",
    ),
    _D(
        "transaction.state.log.num.partitions",
        _INT,
        50,
        _POSITIVE,
        "The number of partitions of __transaction_state. The setting is used only when the topic is created.",
    ),
    _D(
        "transaction.state.log.replication.factor",
        _SHORT,
        3,
        _REPLICATION_FACTOR,
        "The replication factor of __transaction_state. The topic is created only when at least this number of "
        "brokers is registered.",
    ),
    _D(
        "transaction.state.log.min.isr",
        _INT,
        2,
        _POSITIVE,
        "The min.insync.replicas of __transaction_state, used only to create the topic. With two replicas the "
        "default is 1, so that one may be offline.",
    ),
    _D(
        "transaction.state.log.segment.bytes",
        _INT,
        104857600,
        Range(1048576),
        "The segment size of __transaction_state in bytes.",
    ),
    _D(
        "transaction.state.log.load.buffer.size",
        _INT,
        5242880,
        _POSITIVE,
        "The number of bytes that a transaction coordinator reads at once while it loads a partition.",
    ),
)

BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    *_IDENTITY,
    *_SOCKETS,
    *LISTENER_CONFIGS.values(),
    *SASL_BROKER_CONFIGS.values(),
    *ACCESS_CONTROL,
    *_TOPICS,
    *_REPLICAS,
    *_GROUPS,
    *SHARE_CONFIGS,
    *_TRANSACTIONS,
    *_PRODUCERS,
    *LOG_CONFIGS,
    *OWN_CONFIGS,
)


def broker_definition(name: str) -> ConfigDefinition | None:
    """Return the definition of a broker setting, also of one with a listener's prefix; None if the name is unknown."""
    return BROKER_CONFIGS.get(name) or prefixed_definition(name)
