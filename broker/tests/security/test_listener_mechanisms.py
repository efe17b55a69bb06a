"""A listener's settings become its mechanisms, or errors that name the setting and no secret."""

from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from barnabas_broker.security.sasl.listener_mechanisms import OAuthSettings, SaslEnvironment, listener_mechanisms
from barnabas_broker.security.sasl.scram import Identity, ServerToken, VerifiedPlain
from barnabas_broker.security.sasl.token_keys import FetchTimes, TokenKeys, TokenRules
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.listeners import ListenerSecurity, SecurityProtocol
from harness.manual_loop_clock import ManualLoopClock

KEYS: list[OAuthSettings] = []


def open_keys(settings: OAuthSettings) -> TokenKeys:
    KEYS.append(settings)
    return TokenKeys(settings.url, AsyncMock(), settings.times, ManualLoopClock())


ENVIRONMENT = SaslEnvironment({}, b"secret of the cluster", lambda: "nonce", open_keys, lambda: 0)
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def security(**texts: str) -> ListenerSecurity:
    named = {f"listener.name.x.{name.replace('__', '-').replace('_', '.')}": text for name, text in texts.items()}
    return ListenerSecurity("X", SecurityProtocol.SASL_PLAINTEXT, named)


def test_plain_knows_the_users_of_its_jaas_config() -> None:
    settings = security(sasl_enabled_mechanisms="PLAIN", plain_sasl_jaas_config=PLAIN)
    mechanisms = listener_mechanisms(settings, ENVIRONMENT)
    assert list(mechanisms) == ["PLAIN"]
    assert mechanisms["PLAIN"].begin().answer(b"\0alice\0geheim") == ServerToken(b"", Identity("alice"))


OF_SCRAM = {"sasl_enabled_mechanisms": "PLAIN", "sasl_plain_credentials": "scram"}


def test_plain_needs_no_jaas_config_if_it_uses_the_credentials_of_scram() -> None:
    settings = replace(security(**OF_SCRAM), protocol=SecurityProtocol.SASL_SSL)
    assert isinstance(listener_mechanisms(settings, ENVIRONMENT)["PLAIN"], VerifiedPlain)


@pytest.mark.parametrize(
    ("line", "protocol", "setting", "says"),
    [
        (None, SecurityProtocol.SASL_PLAINTEXT, "sasl.plain.credentials", "needs a listener with SASL_SSL"),
        (
            PLAIN,
            SecurityProtocol.SASL_SSL,
            "plain.sasl.jaas.config",
            "must not declare users if sasl.plain.credentials",
        ),
    ],
)
def test_plain_with_the_credentials_of_scram_requires_tls_and_allows_no_other_users(
    line: str | None, protocol: SecurityProtocol, setting: str, says: str
) -> None:
    texts = OF_SCRAM if line is None else {**OF_SCRAM, "plain_sasl_jaas_config": line}
    with pytest.raises(InvalidConfig) as refused:
        listener_mechanisms(replace(security(**texts), protocol=protocol), ENVIRONMENT)
    (problem,) = refused.value.problems
    assert (problem.name, says in problem.allowed) == (f"listener.name.x.{setting}", True)
    assert "geheim" not in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "setting", "says"),
    [
        ({}, "sasl.enabled.mechanisms", "must name at least one of PLAIN"),
        ({"sasl_enabled_mechanisms": ""}, "listener.name.x.sasl.enabled.mechanisms", "must name at least one of PLAIN"),
        ({"sasl_enabled_mechanisms": "PLAIN"}, "listener.name.x.plain.sasl.jaas.config", "must be set"),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "sasl_jaas_config": PLAIN},
            "listener.name.x.plain.sasl.jaas.config",
            "must be set",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": SCRAM},
            "listener.name.x.plain.sasl.jaas.config",
            "must have the login module of PLAIN",
        ),
        (
            {"sasl_enabled_mechanisms": "PLAIN", "plain_sasl_jaas_config": PLAIN[:-1]},
            "listener.name.x.plain.sasl.jaas.config",
            "must end in ;",
        ),
    ],
)
def test_a_missing_or_wrong_setting_is_named(texts: dict[str, str], setting: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        listener_mechanisms(security(**texts), ENVIRONMENT)
    (problem,) = refused.value.problems
    assert problem.name == setting
    assert says in problem.allowed
    assert "geheim" not in str(refused.value)


def of_tokens(**settings: str) -> ListenerSecurity:
    """A listener with OAUTHBEARER and its settings, by their names after `sasl.oauthbearer.`."""
    usual = {"jwks.endpoint.url": "file:///keys", "expected.audience": "a, b", "expected.issuer": "i", **settings}
    texts = {f"listener.name.x.oauthbearer.sasl.oauthbearer.{name}": text for name, text in usual.items() if text}
    texts["listener.name.x.sasl.enabled.mechanisms"] = "OAUTHBEARER"
    return ListenerSecurity("X", SecurityProtocol.SASL_SSL, texts)


def test_tokens_are_verified_by_the_settings_of_their_listener() -> None:
    line = f'{OAUTH} ssl.truststore.location="/ca.pem" clientId="x";'
    settings = of_tokens(**{"clock.skew.seconds": "5", "sub.claim.name": "user", "jwks.endpoint.refresh.ms": "5000"})
    texts = {**settings.texts, "listener.name.x.oauthbearer.sasl.jaas.config": line}
    assert list(listener_mechanisms(ListenerSecurity("X", settings.protocol, texts), ENVIRONMENT)) == ["OAUTHBEARER"]
    rules = TokenRules(("a", "b"), "i", 5, "scope", "user")
    trust = {"ssl.truststore.location": "/ca.pem"}
    assert KEYS[-1] == OAuthSettings("file:///keys", trust, FetchTimes(5.0, 0.1, 10.0), rules)


def test_an_allowed_url_and_tokens_with_an_unverified_issuer_and_audience_are_accepted() -> None:
    url = "https://issuer.example.org/keys"
    allowed = {"jwks.endpoint.url": url, "allowed.urls": f"https://other.example.org/,{url}"}
    anybody = {"allow.unverified.audience": "true", "allow.unverified.issuer": "true"}
    listener_mechanisms(of_tokens(**allowed, **anybody), ENVIRONMENT)
    assert (KEYS[-1].url, KEYS[-1].rules.audiences, KEYS[-1].rules.issuer) == (url, (), None)


@pytest.mark.parametrize(
    ("settings", "setting", "says"),
    [
        ({"jwks.endpoint.url": ""}, "jwks.endpoint.url", "must be set"),
        (
            {"jwks.endpoint.url": "https://i/keys"},
            "jwks.endpoint.url",
            "one of the URLs in sasl.oauthbearer.allowed.urls",
        ),
        (
            {"jwks.endpoint.url": "https://i/keys/", "allowed.urls": "https://i/keys"},
            "jwks.endpoint.url",
            "one of the URLs in",
        ),
        ({"jwks.endpoint.url": "ftp://i/keys"}, "jwks.endpoint.url", "a URL of https, http or file"),
        ({"expected.audience": ""}, "expected.audience", "must be set, unless"),
        ({"expected.issuer": ""}, "expected.issuer", "must be set, unless"),
    ],
)
def test_oauthbearer_requires_an_allowed_key_url_an_audience_and_an_issuer(
    settings: dict[str, str], setting: str, says: str
) -> None:
    with pytest.raises(InvalidConfig) as refused:
        listener_mechanisms(of_tokens(**settings), ENVIRONMENT)
    (problem,) = refused.value.problems
    assert problem.name.endswith(f"sasl.oauthbearer.{setting}")
    assert says in problem.allowed


def test_a_jaas_config_that_accepts_unsigned_tokens_is_refused() -> None:
    line = f'{OAUTH} unsecuredValidatorAllowableClockSkewMs="3000";'
    texts = {**of_tokens().texts, "listener.name.x.oauthbearer.sasl.jaas.config": line}
    with pytest.raises(InvalidConfig, match="must not have unsecuredValidatorAllowableClockSkewMs"):
        listener_mechanisms(ListenerSecurity("X", SecurityProtocol.SASL_SSL, texts), ENVIRONMENT)


def test_oauthbearer_is_refused_as_the_mechanism_between_brokers() -> None:
    with pytest.raises(InvalidConfig, match="=OAUTHBEARER: must be text, one of PLAIN, SCRAM-SHA-256"):
        parse_broker_config({"sasl.mechanism.inter.broker.protocol": "OAUTHBEARER"})
