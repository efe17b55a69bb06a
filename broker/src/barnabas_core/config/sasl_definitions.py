"""The definitions of SASL settings of brokers, listeners and mechanisms, with Kafka's names and defaults.

Kafka's default mechanism GSSAPI is not supported, so a listener with SASL must name other mechanisms.
`sasl.plain.credentials` and `sasl.scram.password.overlap.max.ms` are our own settings.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import INT_MAX, ConfigDefinition, ConfigType, OneOf, Range, table
from barnabas_core.config.oauth_definitions import OAUTH_CONFIGS

BETWEEN_BROKERS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*BETWEEN_BROKERS, "OAUTHBEARER")
OF_JAAS: Final = "jaas"
OF_SCRAM: Final = "scram"
OVERLAP_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""Seven days, the longest time for which two passwords of a user may be valid."""
_D = ConfigDefinition
_SESSIONS: Final = _D(
    "connections.max.reauth.ms",
    ConfigType.LONG,
    0,
    Range(0),
    "The time in milliseconds after which a client must authenticate again; 0 means never.",
)

SASL_MECHANISM_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _D(
        "sasl.jaas.config",
        ConfigType.PASSWORD,
        None,
        None,
        "The login module of a mechanism, with the passwords of PLAIN users (user_NAME) and this "
        "broker's login at other brokers.",
    ),
    _SESSIONS,
    *OAUTH_CONFIGS.values(),
)
"""The settings that can have the prefix `listener.name.NAME.MECHANISM.`."""

SASL_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _D(
        "sasl.enabled.mechanisms",
        ConfigType.LIST,
        ("GSSAPI",),
        OneOf((*MECHANISMS, "GSSAPI")),
        "The mechanisms by which clients may authenticate. GSSAPI and delegation tokens are not supported.",
    ),
    _D(
        "sasl.plain.credentials",
        ConfigType.STRING,
        OF_JAAS,
        OneOf((OF_JAAS, OF_SCRAM)),
        "The passwords that PLAIN accepts: the passwords in sasl.jaas.config (jaas), or those of SCRAM users (scram).",
    ),
    _D(
        "sasl.server.max.receive.size",
        ConfigType.INT,
        524_288,
        Range(1, INT_MAX),
        "The maximum size in bytes of a frame before a client has authenticated; values above 65536 count as 65536.",
    ),
    _SESSIONS,
    *OAUTH_CONFIGS.values(),
)
"""The settings that can have the prefix `listener.name.NAME.`."""

SASL_BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _D(
        "connection.failed.authentication.delay.ms",
        ConfigType.INT,
        100,
        Range(0),
        "The time in milliseconds by which the response to a failed login is delayed, to slow down password guessing.",
    ),
    _D(
        "sasl.mechanism.inter.broker.protocol",
        ConfigType.STRING,
        "GSSAPI",
        OneOf((*BETWEEN_BROKERS, "GSSAPI")),
        "The mechanism by which brokers authenticate to each other, if the listener between brokers uses SASL.",
    ),
    _D(
        "sasl.scram.password.overlap.max.ms",
        ConfigType.LONG,
        OVERLAP_MS_MAX,
        Range(0, OVERLAP_MS_MAX),
        "The longest time in milliseconds for which the previous password of a SCRAM user may stay valid beside a new "
        "one, if the request for the new one asks for that; 0 refuses such requests.",
    ),
)
"""The settings that can be set only for the whole broker."""
