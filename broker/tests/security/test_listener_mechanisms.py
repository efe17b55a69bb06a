"""A listener's settings become its mechanisms, or errors that name the setting and no secret."""

import pytest

from barnabas_broker.security.sasl.listener_mechanisms import SaslEnvironment, listener_mechanisms
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.listener_security import ListenerSecurity, SecurityProtocol

ENVIRONMENT = SaslEnvironment({}, b"secret of the cluster", lambda: "nonce")
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="geheim";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def security(**texts: str) -> ListenerSecurity:
    named = {f"listener.name.x.{name.replace('__', '-').replace('_', '.')}": text for name, text in texts.items()}
    return ListenerSecurity("X", SecurityProtocol.SASL_PLAINTEXT, named)


def test_plain_knows_the_users_of_its_line() -> None:
    settings = security(sasl_enabled_mechanisms="PLAIN", plain_sasl_jaas_config=PLAIN)
    mechanisms = listener_mechanisms(settings, ENVIRONMENT)
    assert list(mechanisms) == ["PLAIN"]
    assert mechanisms["PLAIN"].begin().respond(b"\0alice\0geheim").identity is not None


@pytest.mark.parametrize(
    ("texts", "setting", "says"),
    [
        ({}, "sasl.enabled.mechanisms", "must name one of PLAIN"),
        ({"sasl_enabled_mechanisms": ""}, "listener.name.x.sasl.enabled.mechanisms", "must name one of PLAIN"),
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
def test_what_is_missing_or_wrong_is_named(texts: dict[str, str], setting: str, says: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        listener_mechanisms(security(**texts), ENVIRONMENT)
    (problem,) = refused.value.problems
    assert problem.name == setting
    assert says in problem.allowed
    assert "geheim" not in str(refused.value)
