"""The definitions of the broker settings that Kafka does not have."""

from typing import Final

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Dynamic, OneOf, Pattern, Range

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
