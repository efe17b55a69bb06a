"""Create the SASL mechanisms of a listener from its settings, and report all invalid settings in one error."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

from barnabas_broker.security.sasl.mechanism import Mechanism
from barnabas_broker.security.sasl.oauth_settings import MECHANISM as OAUTHBEARER
from barnabas_broker.security.sasl.oauth_settings import OAuthSettings, oauth_settings
from barnabas_broker.security.sasl.plain import Plain
from barnabas_broker.security.sasl.scram import Scram
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES, SaltShape, ScramCredential
from barnabas_broker.security.sasl.tokens.token_keys import TokenKeys
from barnabas_core.config.definitions import ConfigProblem, InvalidConfig
from barnabas_core.config.jaas import InvalidJaas, JaasEntry, parse_jaas
from barnabas_core.config.listener_security import ListenerSecurity
from barnabas_core.config.sasl_definitions import MECHANISMS

ENABLED: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"


class SaslEnvironment(NamedTuple):
    """The dependencies of the mechanisms besides their settings."""

    credentials: Mapping[tuple[str, str], ScramCredential]
    """The current SCRAM verifiers by user and mechanism."""
    secret: bytes
    """A secret that all brokers of the cluster share."""
    new_nonce: Callable[[], str]
    open_keys: Callable[[OAuthSettings], TokenKeys]
    """A function that returns the keys that verify tokens."""
    now_ms: Callable[[], int]
    shapes: Callable[[str], Collection[SaltShape]] = lambda _: ()
    """A function that returns the salt shapes of the users of a mechanism."""


def listener_mechanisms(security: ListenerSecurity, environment: SaslEnvironment) -> Mapping[str, Mechanism]:
    """Return the enabled mechanisms of a SASL listener by name. Raise InvalidConfig if a setting is invalid."""
    names = security.value(ENABLED)
    assert isinstance(names, tuple), "the setting is a list"
    problems: list[ConfigProblem] = []
    if not names or any(name not in MECHANISMS for name in names):
        allowed = f"must name at least one of {', '.join(MECHANISMS)} for the listener {security.name}"
        problems.append(ConfigProblem(security.setting(ENABLED), ",".join(names), allowed))
    entries = {name: jaas_entry(security, name, problems) for name in dict.fromkeys(names) if name in MECHANISMS}
    oauth = oauth_settings(security, entries[OAUTHBEARER].options, problems) if OAUTHBEARER in entries else None
    if problems:
        raise InvalidConfig(problems)
    return {name: _mechanism(name, entry, oauth, environment) for name, entry in entries.items()}


def _mechanism(name: str, entry: JaasEntry, oauth: OAuthSettings | None, environment: SaslEnvironment) -> Mechanism:
    if name == OAUTHBEARER:
        # The import makes the start of a broker a third longer, so only OAUTHBEARER triggers it.
        from barnabas_broker.security.sasl.oauth_bearer import OAuthBearer

        assert oauth is not None, "the OAUTHBEARER settings are valid"
        return OAuthBearer(environment.open_keys(oauth), oauth.rules, environment.now_ms)
    if name in SCRAM_HASHES:
        return Scram(
            SCRAM_HASHES[name],
            lambda user: environment.credentials.get((user, name)),
            environment.secret,
            environment.new_nonce,
            lambda: environment.shapes(name),
        )
    return Plain(entry.users)


def jaas_entry(security: ListenerSecurity, mechanism: str, problems: list[ConfigProblem]) -> JaasEntry:
    """Return the JAAS entry of a mechanism, and append its errors to `problems`; only PLAIN requires an entry.

    The setting must have the mechanism in its name; as in Kafka, a JAAS setting for the whole listener is ignored.
    """
    family = mechanism.partition("-")[0]
    setting = f"listener.name.{security.name.lower()}.{mechanism.lower()}.{JAAS}"
    text = security.texts.get(setting)
    if text is None:
        if family == "PLAIN":
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
