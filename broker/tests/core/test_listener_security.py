"""The security settings of a listener: its own override the broker's, and secrets are hidden."""

import pytest

from barnabas_core.config.broker_config import parse_broker_config, unused_settings
from barnabas_core.config.definitions import InvalidConfig
from barnabas_core.config.describe import describe_broker
from barnabas_core.config.listeners import ListenerSecurity, SecurityProtocol

TEXTS = {
    "ssl.client.auth": "required",
    "ssl.keystore.type": "PEM",
    "listener.name.outside.ssl.client.auth": "none",
    "listener.name.outside.plain.sasl.jaas.config": "for PLAIN",
    "listener.name.outside.sasl.jaas.config": "for all mechanisms",
}


def test_a_setting_of_a_listener_overrides_that_of_the_broker() -> None:
    outside = ListenerSecurity("OUTSIDE", SecurityProtocol.SSL, TEXTS)
    inside = ListenerSecurity("INSIDE", SecurityProtocol.SSL, TEXTS)
    assert (outside.value("ssl.client.auth"), inside.value("ssl.client.auth")) == ("none", "required")
    assert outside.value("ssl.keystore.type") == "PEM"
    assert inside.value("ssl.enabled.protocols") == ("TLSv1.2", "TLSv1.3")
    assert outside.setting("ssl.client.auth") == "listener.name.outside.ssl.client.auth"
    assert inside.setting("ssl.client.auth") == "ssl.client.auth"


def test_a_setting_of_a_mechanism_overrides_that_of_the_listener() -> None:
    outside = ListenerSecurity("OUTSIDE", SecurityProtocol.SASL_SSL, TEXTS)
    assert outside.text("sasl.jaas.config", "PLAIN") == "for PLAIN"
    assert outside.text("sasl.jaas.config", "SCRAM-SHA-256") == "for all mechanisms"
    assert ListenerSecurity("INSIDE", SecurityProtocol.SASL_SSL, TEXTS).text("sasl.jaas.config", "PLAIN") is None


def test_a_problem_of_a_listener_names_the_setting_and_hides_secrets() -> None:
    security = ListenerSecurity("X", SecurityProtocol.SSL, {"listener.name.x.ssl.key.password": "s3cret"})
    assert str(security.problem("ssl.key.password", "opens nothing")) == (
        "listener.name.x.ssl.key.password: opens nothing"
    )
    assert "s3cret" not in repr(security)


def test_descriptions_contain_settings_of_listeners_without_their_secrets() -> None:
    config = parse_broker_config(
        {"listener.name.x.ssl.key.password": "s3cret", "listener.name.x.ssl.client.auth": "none"}
    )
    described = {entry.name: entry for entry in describe_broker(config)}
    password = described["listener.name.x.ssl.key.password"]
    assert (password.value, password.sensitive, password.read_only) == (None, True, False)
    auth = described["listener.name.x.ssl.client.auth"]
    assert (auth.value, auth.sensitive, auth.read_only) == ("none", False, True)


def test_the_error_for_a_mistyped_name_does_not_contain_the_secret() -> None:
    with pytest.raises(InvalidConfig) as refused:
        parse_broker_config({"ssl.keystore.pasword": "s3cret"})
    assert "did you mean ssl.keystore.password?" in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_a_warning_names_a_setting_that_cannot_be_set_for_one_listener() -> None:
    assert unused_settings({"listener.name.x.max.connections": "5", "listener.name.x.ssl.provider": "Y"}) == [
        "listener.name.x.max.connections has no effect: the setting applies to all listeners together",
        "listener.name.x.ssl.provider has no effect: TLS uses OpenSSL, not Java's security providers",
    ]


def test_a_jaas_config_without_a_mechanism_has_no_effect() -> None:
    named, unnamed = "listener.name.x.plain.sasl.jaas.config", "listener.name.x.sasl.jaas.config"
    assert [each.partition(" ")[0] for each in unused_settings([named, unnamed])] == [unnamed]
