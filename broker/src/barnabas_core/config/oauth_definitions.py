"""The definitions of OAUTHBEARER settings, with Kafka's names and defaults.

`sasl.oauthbearer.allowed.urls` is our own setting; in Kafka it is a system property of the Java process.
"""

from collections.abc import Mapping
from typing import Final

from barnabas_core.config.definitions import ConfigDefinition, ConfigType, Pattern, Range, table

_D = ConfigDefinition
_STRING, _LIST, _BOOLEAN, _LONG = ConfigType.STRING, ConfigType.LIST, ConfigType.BOOLEAN, ConfigType.LONG
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
