"""The environment variables of `barnabas operator`."""

import pytest

from barnabas_core.conventions import WebFiles
from barnabas_operator.app.operator import InvalidVariable, Variables, read_variables
from barnabas_operator.manifests.kube_object import Neighbours


def test_unset_variables_have_their_defaults_and_other_variables_are_ignored() -> None:
    assert read_variables({"HOME": "/root", "log_level": "nonsense"}) == Variables()


def test_environment_variables_become_settings() -> None:
    told = {
        "WATCH_NAMESPACES": "orders, billing,",
        "IMAGE_PULL_SECRETS": "login,other",
        "DRIFT_SECONDS": "90",
        "GROUP_POLL_SECONDS": "0.5",
        "LEASE": "tools/barnabas",
        "POD_NAMESPACE": "tools",
        "RELEASE": "main",
        "POD_MONITOR_LABELS": '{"release": "prometheus"}',
        "HTTP_LISTENER": "[::]:8080",
        "WEBHOOK_CERTIFICATES": "",
    }
    read = read_variables(told)
    settings = read.settings("me")
    assert (read.http_listener, read.webhook_certificates) == ("[::]:8080", "")
    assert (settings.namespaces, settings.drift_s, settings.group_poll_s) == (("orders", "billing"), 90.0, 0.5)
    assert settings.pull_secrets == ("login", "other")
    assert (settings.lease, settings.identity) == ("tools/barnabas", "me")
    assert settings.neighbours == Neighbours("tools", "main", {"release": "prometheus"})


@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("DRIFT_SECONDS", "abc", "a number of seconds from 0.1 to 86400"),
        ("DRIFT_SECONDS", "nan", "a number of seconds from 0.1 to 86400"),
        ("GROUP_POLL_SECONDS", "0", "a number of seconds from 0.1 to 86400"),
        ("RUN_POLL_SECONDS", "", "a number of seconds from 0.1 to 86400"),
        ("LOG_LEVEL", "TRACE", "one of DEBUG, INFO, WARNING and ERROR"),
        ("LEASE", "barnabas", "NAMESPACE/NAME, or nothing"),
        ("HTTP_LISTENER", "8080", "HOST:PORT, with a port up to 65535"),
        ("HTTP_LISTENER", "0.0.0.0:65536", "HOST:PORT, with a port up to 65535"),
        ("POD_MONITOR_LABELS", "release=prometheus", 'labels as JSON, such as {"release": "prometheus"}'),
        ("POD_MONITOR_LABELS", '{"release": 1}', 'labels as JSON, such as {"release": "prometheus"}'),
    ],
)
def test_an_invalid_value_is_refused_with_the_values_that_the_variable_allows(
    name: str, value: str, takes: str
) -> None:
    with pytest.raises(InvalidVariable) as refused:
        read_variables({name: value})
    assert str(refused.value) == f"the environment variable {name} is {value}; allowed: {takes}"


def test_a_token_without_a_certificate_is_refused() -> None:
    with pytest.raises(InvalidVariable) as refused:
        read_variables({"HTTP_TOKEN_FILE": "/run/token"})
    why = "because without TLS the token would be sent in clear"
    assert str(refused.value) == (
        f"HTTP_TOKEN_FILE=/run/token is refused; the variable must be set together with HTTP_CERTIFICATES, {why}"
    )


def test_the_certificate_and_its_key_are_files_of_the_mounted_secret() -> None:
    read = read_variables({"HTTP_CERTIFICATES": "/etc/web", "HTTP_TOKEN_FILE": "/run/token"})
    assert read.web_files() == WebFiles("/etc/web/tls.crt", "/etc/web/tls.key", "/run/token")
