"""The definitions of broker settings for access control.

The SASL settings of brokers, listeners and mechanisms have Kafka's names and defaults. Kafka's default mechanism GSSAPI
is not supported, so a listener with SASL must name other mechanisms. `sasl.plain.credentials` and
`sasl.scram.password.overlap.max.ms` are our own settings.

The OAUTHBEARER settings have Kafka's names and defaults, too. `sasl.oauthbearer.allowed.urls` is our own
setting; in Kafka it is a system property of the Java process.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import INT_MAX, ConfigDefinition, ConfigType, OneOf, Pattern, Range, table

_D = ConfigDefinition
_STRING = ConfigType.STRING
_LIST = ConfigType.LIST
_BOOLEAN = ConfigType.BOOLEAN
_LONG = ConfigType.LONG
_PREFIX: Final = "sasl.oauthbearer."
_KEYS: Final = f"{_PREFIX}jwks.endpoint."
_CLAIM: Final = Pattern(r"\S+", "the name of a claim")

KEYS_URL: Final = f"{_KEYS}url"
ALLOWED_URLS: Final = f"{_PREFIX}allowed.urls"
EXPECTED_AUDIENCE: Final = f"{_PREFIX}expected.audience"
EXPECTED_ISSUER: Final = f"{_PREFIX}expected.issuer"
ALLOW_ANY_AUDIENCE: Final = f"{_PREFIX}allow.unverified.audience"
ALLOW_ANY_ISSUER: Final = f"{_PREFIX}allow.unverified.issuer"
REFRESH_MS: Final = f"{_KEYS}refresh.ms"
RETRY_BACKOFF_MS: Final = f"{_KEYS}retry.backoff.ms"
RETRY_BACKOFF_MAX_MS: Final = f"{_KEYS}retry.backoff.max.ms"
CLOCK_SKEW_SECONDS: Final = f"{_PREFIX}clock.skew.seconds"
SCOPE_CLAIM_NAME: Final = f"{_PREFIX}scope.claim.name"
SUB_CLAIM_NAME: Final = f"{_PREFIX}sub.claim.name"

OAUTH_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _D(
        KEYS_URL,
        _STRING,
        None,
        Pattern(r"https?://\S+|file:(//)?/.+", "a URL of https, http or file"),
        "The URL of the JWK set with the public keys that verify tokens.",
    ),
    _D(ALLOWED_URLS, _LIST, (), None, "The URLs from which keys may be fetched; file: URLs are always allowed."),
    _D(
        EXPECTED_AUDIENCE,
        _LIST,
        (),
        None,
        "The allowed audiences. The aud claim of a token must name at least one of them.",
    ),
    _D(EXPECTED_ISSUER, _STRING, None, None, "The issuer that the iss claim of every token must name."),
    _D(ALLOW_ANY_AUDIENCE, _BOOLEAN, False, None, "Whether tokens for any audience are accepted."),
    _D(
        ALLOW_ANY_ISSUER,
        _BOOLEAN,
        False,
        None,
        "Whether tokens of any issuer are accepted, if their signature is valid.",
    ),
    _D(REFRESH_MS, _LONG, 3_600_000, Range(1000), "The time in milliseconds after which the keys are fetched again."),
    _D(
        RETRY_BACKOFF_MS,
        _LONG,
        100,
        Range(1),
        "The first wait in milliseconds before a failed fetch of keys is retried; each further wait is twice as long.",
    ),
    _D(
        RETRY_BACKOFF_MAX_MS,
        _LONG,
        10_000,
        Range(1),
        "The maximum wait in milliseconds before a failed fetch of keys is retried.",
    ),
    _D(
        CLOCK_SKEW_SECONDS,
        ConfigType.INT,
        30,
        Range(0),
        "The maximum difference in seconds between the clocks of the token issuer and the broker.",
    ),
    _D(
        SCOPE_CLAIM_NAME,
        _STRING,
        "scope",
        _CLAIM,
        "The claim with the scopes of a token; the claim's value must be a string or a list of strings.",
    ),
    _D(SUB_CLAIM_NAME, _STRING, "sub", _CLAIM, "The claim of a token that becomes the client's user name."),
)


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"

ACCESS_CONTROL: Final = (
    ConfigDefinition(
        "authorizer.class.name",
        ConfigType.STRING,
        "",
        OneOf(("", STANDARD_AUTHORIZER, ACL_AUTHORIZER)),
        "The class of the authorizer that enforces ACLs; the two allowed classes have the same effect. If empty, all "
        "clients may do everything.",
    ),
    ConfigDefinition(
        "super.users",
        ConfigType.STRING,
        "",
        Pattern(
            r"\s*([^;:]+:[^;]+(;\s*|$))*",
            "principals as TYPE:NAME, separated by semicolons, such as User:admin;User:CN=broker",
        ),
        "The principals that may do everything, usually with the brokers' own principals among them.",
    ),
    ConfigDefinition(
        "allow.everyone.if.no.acl.found",
        ConfigType.BOOLEAN,
        False,
        None,
        "Whether all clients may use a resource that has no ACL.",
    ),
)


BETWEEN_BROKERS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (*BETWEEN_BROKERS, "OAUTHBEARER")
OF_JAAS: Final = "jaas"
OF_SCRAM: Final = "scram"
OVERLAP_MS_MAX: Final = 7 * 24 * 3600 * 1000
"""Seven days, the longest time for which two passwords of a user may be valid."""
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


_PASSWORD = ConfigType.PASSWORD
_STORE_TYPES: Final = OneOf(("PEM", "PKCS12", "JKS"))

SSL_CONFIGS: Final[Mapping[str, ConfigDefinition]] = table(
    _D(
        "ssl.keystore.type",
        _STRING,
        "JKS",
        _STORE_TYPES,
        "The format of the keystore: PEM or PKCS12. A JKS file must be converted.",
    ),
    _D(
        "ssl.keystore.location",
        _STRING,
        None,
        None,
        "The path of the file with the broker's private key and certificates.",
    ),
    _D("ssl.keystore.password", _PASSWORD, None, None, "The password of a PKCS12 keystore."),
    _D("ssl.key.password", _PASSWORD, None, None, "The password of an encrypted private key."),
    _D(
        "ssl.keystore.key",
        _PASSWORD,
        None,
        None,
        "The broker's private key as PEM text (PKCS#8), in place of a keystore file.",
    ),
    _D("ssl.keystore.certificate.chain", _PASSWORD, None, None, "The broker's certificate and its chain as PEM text."),
    _D(
        "ssl.truststore.type",
        _STRING,
        "JKS",
        _STORE_TYPES,
        "The format of the truststore: PEM or PKCS12. A JKS file must be converted.",
    ),
    _D(
        "ssl.truststore.location",
        _STRING,
        None,
        None,
        "The path of the file with the certificates of the trusted authorities.",
    ),
    _D("ssl.truststore.password", _PASSWORD, None, None, "The password of a PKCS12 truststore."),
    _D(
        "ssl.truststore.certificates",
        _PASSWORD,
        None,
        None,
        "The certificates of the trusted authorities as PEM text, in place of a truststore file.",
    ),
    _D(
        "ssl.client.auth",
        _STRING,
        "none",
        OneOf(("none", "requested", "required")),
        "The rule for client certificates: required, requested (a client may present one) or none.",
    ),
    _D(
        "ssl.enabled.protocols",
        _LIST,
        ("TLSv1.2", "TLSv1.3"),
        OneOf(("TLSv1.2", "TLSv1.3")),
        "The allowed versions of TLS.",
    ),
    _D("ssl.protocol", _STRING, "TLSv1.3", OneOf(("TLSv1.2", "TLSv1.3")), "The newest allowed version of TLS."),
    _D(
        "ssl.cipher.suites",
        _LIST,
        (),
        None,
        "The allowed cipher suites, by their names in Java; by default all strong suites.",
    ),
    _D(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        OneOf(("https", "HTTPS", "")),
        "The check of other brokers' host names when a broker connects with TLS; an empty value turns the check off.",
    ),
    _D(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        None,
        "The rules that map a certificate's distinguished name to a user name.",
    ),
    _D(
        "ssl.allow.dn.changes",
        _BOOLEAN,
        False,
        None,
        "Whether a new certificate may have another distinguished name than the old certificate.",
    ),
    _D(
        "ssl.allow.san.changes",
        _BOOLEAN,
        False,
        None,
        "Whether a new certificate may lack subject alternative names that the old certificate has.",
    ),
)

RELOADED: Final = frozenset(
    {
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.key.password",
        "ssl.keystore.key",
        "ssl.keystore.certificate.chain",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
    }
)
"""The settings of a listener that can change while the broker runs (KIP-226)."""


TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
TLS_1_2_SUITES: Final[Mapping[str, str]] = {
    f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{openssl}"
    for key in ("ECDSA", "RSA")
    for java, openssl in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
STRONG: Final = ":".join(TLS_1_2_SUITES.values())
