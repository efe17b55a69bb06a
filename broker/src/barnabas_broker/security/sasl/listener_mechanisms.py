"""Create the SASL mechanisms of a listener from its settings, and report all invalid settings in one error."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import Mechanism
from barnabas_broker.security.sasl.plain import Plain, VerifiedPlain
from barnabas_broker.security.sasl.scram import Scram
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES, SaltShape, ScramCredential
from barnabas_broker.security.sasl.tokens.token_keys import FetchTimes, TokenKeys, TokenRules
from barnabas_core.config import oauth_definitions as names
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig, Value
from barnabas_core.config.listeners import InvalidJaas, JaasEntry, ListenerSecurity, parse_jaas
from barnabas_core.config.security_definitions import MECHANISMS, OF_SCRAM

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


ENABLED: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
PLAIN_CREDENTIALS: Final = "sasl.plain.credentials"
_PLAIN: Final = "PLAIN"
_BY_PREFERENCE: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The SCRAM mechanisms whose verifiers PLAIN uses to check passwords. If a user has verifiers for both, PLAIN uses
SCRAM-SHA-512."""


class SaslEnvironment(NamedTuple):
    """The values and functions that mechanisms need besides the settings of their listener."""

    credentials: Mapping[tuple[str, str], ScramCredential]
    """The current SCRAM verifiers by user and mechanism."""
    secret: bytes
    """A secret that all brokers of the cluster share."""
    new_nonce: Callable[[], str]
    open_keys: Callable[[OAuthSettings], TokenKeys]
    """A function that returns the keys that verify tokens."""
    now_ms: Callable[[], int]
    shapes: Callable[[str], Collection[SaltShape]] = lambda _: ()
    """A function that takes a mechanism, and returns the pairs (salt length, iteration count) of its verifiers."""


def listener_mechanisms(security: ListenerSecurity, environment: SaslEnvironment) -> Mapping[str, Mechanism]:
    """Return the enabled mechanisms of a SASL listener by name. Raise InvalidConfig if a setting is invalid."""
    names = security.value(ENABLED)
    assert isinstance(names, tuple), "a setting of type list must have been parsed into a tuple"
    problems: list[ConfigProblem] = []
    if not names or any(name not in MECHANISMS for name in names):
        allowed = f"must name at least one of {', '.join(MECHANISMS)} for the listener {security.name}"
        problems.append(ConfigProblem(security.setting(ENABLED), ",".join(names), allowed))
    entries = {name: jaas_entry(security, name, problems) for name in dict.fromkeys(names) if name in MECHANISMS}
    if _PLAIN in entries and has_plain_of_scram(security):
        problems += _problems_of_scram(security, entries[_PLAIN])
    oauth = oauth_settings(security, entries[MECHANISM].options, problems) if MECHANISM in entries else None
    if problems:
        raise InvalidConfig(problems)
    return {name: _mechanism(name, each, security, environment, oauth) for name, each in entries.items()}


def has_plain_of_scram(security: ListenerSecurity) -> bool:
    """True if PLAIN on this listener checks the passwords of SCRAM users."""
    return security.value(PLAIN_CREDENTIALS) == OF_SCRAM


def _problems_of_scram(security: ListenerSecurity, entry: JaasEntry) -> Iterator[ConfigProblem]:
    """Yield the problems in the settings of the mechanism PLAIN if PLAIN checks the passwords of SCRAM users."""
    if not security.protocol.has_tls:
        yield security.problem(
            PLAIN_CREDENTIALS, "needs a listener with SASL_SSL, because PLAIN sends passwords in clear"
        )
    if entry.users:
        allowed = (
            f"must not declare users if {PLAIN_CREDENTIALS}={OF_SCRAM} is set, because PLAIN then accepts SCRAM users"
        )
        yield security.problem(JAAS, allowed, _PLAIN)


def _mechanism(
    name: str, entry: JaasEntry, security: ListenerSecurity, environment: SaslEnvironment, oauth: OAuthSettings | None
) -> Mechanism:
    if name == MECHANISM:
        # The import is here because it lengthens the start of a broker by a third, and only OAUTHBEARER needs it.
        from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer

        assert oauth is not None, "the OAUTHBEARER settings must have been checked"
        return OAuthBearer(environment.open_keys(oauth), oauth.rules, environment.now_ms)
    if name in SCRAM_HASHES:
        return _scram(name, environment)
    if has_plain_of_scram(security):
        return VerifiedPlain([_scram(each, environment) for each in _BY_PREFERENCE], environment.new_nonce().encode())
    return Plain(entry.users)


def _scram(name: str, environment: SaslEnvironment) -> Scram:
    def credential_of(user: str) -> ScramCredential | None:
        stored = environment.credentials.get((user, name))
        return None if stored is None else stored.at(environment.now_ms())

    return Scram(
        SCRAM_HASHES[name],
        credential_of,
        environment.secret,
        environment.new_nonce,
        lambda: environment.shapes(name),
    )


def jaas_entry(security: ListenerSecurity, mechanism: str, problems: list[ConfigProblem]) -> JaasEntry:
    """Return the JAAS entry of a mechanism, and append its errors to `problems`.

    Only PLAIN requires an entry, unless PLAIN checks the passwords of SCRAM users. The name of the JAAS setting must
    include the mechanism; as in Kafka, a JAAS setting for the whole listener is ignored.
    """
    family = mechanism.partition("-")[0]
    setting = f"listener.name.{security.name.lower()}.{mechanism.lower()}.{JAAS}"
    text = security.texts.get(setting)
    if text is None:
        if family == _PLAIN and not has_plain_of_scram(security):
            problems.append(ConfigProblem(setting, None, "must be set, with the users and their passwords"))
        return JaasEntry(family, {})
    try:
        entry = parse_jaas(text)
    except InvalidJaas as error:
        problems.append(ConfigProblem(setting, None, str(error)))
        return JaasEntry(family, {})
    if entry.family != family:
        allowed = f"must have the login module of {mechanism}, not of {entry.family}"
        problems.append(ConfigProblem(setting, None, allowed))
    return entry
