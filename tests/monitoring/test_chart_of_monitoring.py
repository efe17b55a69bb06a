"""The chart renders the alerts and dashboards as their files have them."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from ruamel.yaml import YAML

from local_kubernetes.helm import CHART, ask_helm, template

RULES_KIND: Final = "monitoring.coreos.com/v1/PrometheusRule"
MONITOR_KIND: Final = "monitoring.coreos.com/v1/PodMonitor"
FILES: Final = CHART / "monitoring"
CONFIG_MAP_BYTES_MAX: Final = 1 << 20
"""The limit of the API server; all dashboards together stay below it, though each has its own ConfigMap."""


@cache
def objects(*values: str) -> list[dict[str, Any]]:
    """Return the objects without the CRDs, which are most of the text."""
    text = template(
        "--namespace=air",
        f"--api-versions={RULES_KIND}",
        f"--api-versions={MONITOR_KIND}",
        "--set=crds.enabled=false",
        *(f"--set={value}" for value in values),
    )
    return [each for each in YAML(typ="safe").load_all(text) if each]


def rendered(kind: str, *values: str) -> list[dict[str, Any]]:
    return [each for each in objects(*values) if each["kind"] == kind]


def alerts_of(groups: list[dict[str, Any]]) -> list[str]:
    return [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]


def test_the_rendered_rules_are_those_of_the_file() -> None:
    (rule,) = rendered("PrometheusRule", "prometheusRules.enabled=true", "prometheusRules.labels.release=prometheus")
    assert rule["spec"] == YAML(typ="safe").load(FILES / "rules.yaml")
    assert rule["metadata"]["labels"]["release"] == "prometheus"


def test_disabled_alerts_are_left_out_with_all_their_severities() -> None:
    (rule,) = rendered(
        "PrometheusRule", "prometheusRules.enabled=true", "prometheusRules.disabled={KafkaRunningOutOfSpace,BrokerDown}"
    )
    every = alerts_of(YAML(typ="safe").load(FILES / "rules.yaml")["groups"])
    left = [each for each in every if each not in ("KafkaRunningOutOfSpace", "BrokerDown")]
    assert alerts_of(rule["spec"]["groups"]) == left
    assert len(left) == len(every) - 3


def test_rules_and_dashboards_are_rendered_only_if_enabled() -> None:
    assert not rendered("PrometheusRule")
    assert not [each for each in rendered("ConfigMap") if "grafana_dashboard" in each["metadata"].get("labels", {})]


PROTECTED: Final = ("metrics.tlsSecret=web", "metrics.tokenSecret=scraper", "podMonitor.enabled=true")


def test_the_operators_metrics_are_protected_if_secrets_are_named() -> None:
    (deployment,), (monitor,) = (rendered(kind, *PROTECTED) for kind in ("Deployment", "PodMonitor"))
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    secrets = {each["name"]: each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert secrets[mounts[environment["HTTP_CERTIFICATES"]]] == "web"
    assert secrets[mounts[environment["HTTP_TOKEN_FILE"].rpartition("/")[0]]] == "scraper"
    probes = [container[f"{each}Probe"]["httpGet"] for each in ("startup", "liveness", "readiness")]
    assert [each["scheme"] for each in probes] == ["HTTPS"] * 3
    assert monitor["spec"]["podMetricsEndpoints"] == [
        {
            "port": "http",
            "path": "/metrics",
            "scheme": "https",
            "tlsConfig": {
                "ca": {"secret": {"name": "web", "key": "ca.crt"}},
                "serverName": "barnabas-operator.air.svc",
            },
            "authorization": {"type": "Bearer", "credentials": {"name": "scraper", "key": "token"}},
        }
    ]


def test_the_operators_metrics_are_open_if_no_secret_is_named() -> None:
    (deployment,), (monitor,) = (rendered(kind, "podMonitor.enabled=true") for kind in ("Deployment", "PodMonitor"))
    assert "HTTP_" not in json.dumps(deployment)
    assert "HTTPS" not in json.dumps(deployment)
    assert monitor["spec"]["podMetricsEndpoints"] == [{"port": "http", "path": "/metrics"}]


def test_a_metrics_token_without_tls_is_refused() -> None:
    done = ask_helm("template", "barnabas", str(CHART), "--set=metrics.tokenSecret=scraper")
    assert done.returncode != 0
    assert (
        "metrics.tokenSecret is scraper and metrics.tlsSecret is empty; allowed: both, because without" in done.stderr
    )


def test_an_older_release_is_upgraded_with_its_own_values() -> None:
    """`helm upgrade --reuse-values` ignores the new chart's defaults, so values that are new in it are missing."""
    plain = "--set=webhook.enabled=false"  # A new certificate would differ each time.
    assert template(plain, "--set=prometheusRules=null", "--set=dashboards=null", "--set=metrics=null") == template(
        plain
    )


@pytest.mark.parametrize("file", sorted((FILES / "dashboards").glob("*.json")), ids=lambda file: file.stem)
def test_each_dashboard_is_rendered_as_a_config_map_with_the_sidecars_label(file: Path) -> None:
    maps = rendered("ConfigMap", "dashboards.enabled=true", "dashboards.annotations.grafana_folder=Kafka")
    (one,) = (each for each in maps if file.name in each["data"])
    assert json.loads(one["data"][file.name]) == json.loads(file.read_text(encoding="utf-8"))
    assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert one["metadata"]["annotations"]["grafana_folder"] == "Kafka"
    assert one["metadata"]["namespace"] == "air"


def test_all_dashboards_together_fit_into_a_config_map() -> None:
    sizes = [file.stat().st_size for file in (FILES / "dashboards").glob("*.json")]
    assert sum(sizes) < CONFIG_MAP_BYTES_MAX
