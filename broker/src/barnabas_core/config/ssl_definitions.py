"""The definitions of TLS settings of brokers and listeners, with Kafka's names and defaults."""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, OneOf, table

_D = ConfigDefinition
_STRING, _LIST, _PASSWORD, _BOOLEAN = ConfigType.STRING, ConfigType.LIST, ConfigType.PASSWORD, ConfigType.BOOLEAN
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
