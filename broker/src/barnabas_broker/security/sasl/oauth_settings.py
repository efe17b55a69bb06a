"""The settings of OAUTHBEARER on a listener; the broker does not start without keys, an audience and an issuer."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.tokens.token_keys import FetchTimes
from barnabas_broker.security.sasl.tokens.token_rules import TokenRules
from barnabas_core.config import oauth_definitions as names
from barnabas_core.config.definitions import ConfigProblem, Value
from barnabas_core.config.listener_security import ListenerSecurity

MECHANISM: Final = "OAUTHBEARER"
TRUST: Final = "ssl.truststore."
"""The prefix of the JAAS options that configure the truststore for fetching the keys from their URL."""


class OAuthSettings(NamedTuple):
    """The URL of the keys, the truststore for the URL, and the rules for tokens."""

    url: str
    trust: Mapping[str, str]
    times: FetchTimes
    rules: TokenRules


def oauth_settings(
    security: ListenerSecurity, options: Mapping[str, str], problems: list[ConfigProblem]
) -> OAuthSettings | None:
    """Return the OAUTHBEARER settings of a listener, from its configs and its JAAS options.

    If the settings are invalid, add the errors to `problems`, and return None.
    """
    values = {name: security.value(name, MECHANISM) for name in names.OAUTH_CONFIGS}
    found = [*_problems(security, values), *_refused_options(security, options)]
    problems += found
    if found:
        return None
    return OAuthSettings(
        url=str(values[names.KEYS_URL]),
        trust={name: value for name, value in options.items() if name.startswith(TRUST)},
        times=FetchTimes(
            refresh_s=_number(values[names.REFRESH_MS]) / 1000,
            backoff_s=_number(values[names.RETRY_BACKOFF_MS]) / 1000,
            backoff_s_max=_number(values[names.RETRY_BACKOFF_MAX_MS]) / 1000,
        ),
        rules=TokenRules(
            audiences=() if values[names.ALLOW_ANY_AUDIENCE] else _words(values[names.EXPECTED_AUDIENCE]),
            issuer=None if values[names.ALLOW_ANY_ISSUER] else str(values[names.EXPECTED_ISSUER]),
            skew_s=_number(values[names.CLOCK_SKEW_SECONDS]),
            scope_claim=str(values[names.SCOPE_CLAIM_NAME]),
            subject_claim=str(values[names.SUB_CLAIM_NAME]),
        ),
    )


def _problems(security: ListenerSecurity, values: Mapping[str, Value]) -> list[ConfigProblem]:
    found = []
    url = values[names.KEYS_URL]
    if url is None:
        found.append((names.KEYS_URL, "must be set to the URL of the keys that verify tokens"))
    elif not str(url).startswith("file:") and url not in _words(values[names.ALLOWED_URLS]):
        found.append((names.KEYS_URL, f"must be a file: URL, or one of the URLs in {names.ALLOWED_URLS}"))
    if not values[names.EXPECTED_AUDIENCE] and not values[names.ALLOW_ANY_AUDIENCE]:
        found.append((names.EXPECTED_AUDIENCE, f"must be set, unless {names.ALLOW_ANY_AUDIENCE}=true"))
    if not values[names.EXPECTED_ISSUER] and not values[names.ALLOW_ANY_ISSUER]:
        found.append((names.EXPECTED_ISSUER, f"must be set, unless {names.ALLOW_ANY_ISSUER}=true"))
    return [security.problem(name, allowed, MECHANISM) for name, allowed in found]


def _refused_options(security: ListenerSecurity, options: Mapping[str, str]) -> list[ConfigProblem]:
    """Return a problem for each JAAS option that would accept unsigned tokens in Kafka."""
    setting = security.setting("sasl.jaas.config", MECHANISM)
    refused = (name for name in options if name.startswith("unsecured"))
    return [
        ConfigProblem(setting, None, f"must not have {name}, because unsigned tokens are never accepted")
        for name in refused
    ]


def _number(value: Value) -> int:
    assert isinstance(value, int), "a setting of type int must have been parsed into an int"
    return value


def _words(value: Value) -> tuple[str, ...]:
    assert isinstance(value, tuple), "a setting of type list must have been parsed into a tuple"
    return value
