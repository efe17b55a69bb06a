"""Create the SASL mechanisms of a listener from its settings, and report all invalid settings in one error."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import Mechanism
from barnabas_broker.security.sasl.oauth_settings import MECHANISM as OAUTHBEARER
from barnabas_broker.security.sasl.oauth_settings import OAuthSettings, oauth_settings
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.scram import Scram
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES, SaltShape, ScramCredential
from barnabas_broker.security.sasl.tokens.token_keys import TokenKeys
from barnabas_broker.security.sasl.verified_plain import VerifiedPlain
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig
from barnabas_core.config.jaas import InvalidJaas, JaasEntry, parse_jaas
from barnabas_core.config.listener_security import ListenerSecurity
from barnabas_core.config.sasl_definitions import MECHANISMS, OF_SCRAM

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
    oauth = oauth_settings(security, entries[OAUTHBEARER].options, problems) if OAUTHBEARER in entries else None
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
    if name == OAUTHBEARER:
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
