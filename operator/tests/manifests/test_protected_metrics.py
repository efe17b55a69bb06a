"""Metrics of brokers and of the lag exporter in pods, protected by a token."""

import datetime as dt
from typing import Any

from msgspec.structs import replace

from barnabas_operator.certificates import certificates_in, hosts_of
from barnabas_operator.manifests.cluster_objects import broker_objects, lag_exporter_objects, supporting_objects
from barnabas_operator.manifests.kube_object import MONITORING, NOBODY_ELSE, KubeObject
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, broker_hosts, plan_secrets
from barnabas_operator.planning.brokers.pod_properties import pod_problems, pod_properties, restart_hash
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, ClusterStatus, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.security import Authentication, Authorization, LagExporter, Metrics

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
INSIDE = Listener(name="inside", tls=True, authentication=Authentication(type="scram-sha-512"))
METRICS = Metrics(token_secret=SecretKeyRef(name="scraper", key="bearer"))
OPEN = Cluster(
    metadata=ObjectMeta(name="one", namespace="air", uid="u-1"),
    spec=ClusterSpec(listeners=(INSIDE,), authorization=Authorization(), lag_exporter=LagExporter()),
)
PROTECTED = replace(OPEN, spec=replace(OPEN.spec, metrics=METRICS))


def objects(cluster: Cluster) -> dict[tuple[str, str], Any]:
    made = supporting_objects(cluster, [MONITORING])
    made += broker_objects(cluster, ExternalAccess(), "image", 1)
    made += lag_exporter_objects(cluster, "image", [MONITORING], NOBODY_ELSE)
    return {(each["kind"], each["metadata"]["name"]): each for each in made}


def pods(cluster: Cluster) -> list[tuple[Any, Any]]:
    """Return the pod and its container, of brokers and of the lag exporter."""
    made = objects(cluster)
    found = (made["StatefulSet", "one-broker"], made["Deployment", "one-lag-exporter"])
    specs = [each["spec"]["template"]["spec"] for each in found]
    return [(each, each["containers"][0]) for each in specs]


def probes(container: Any) -> set[str | None]:
    return {each["httpGet"].get("scheme") for name, each in container.items() if name.endswith("Probe")}


def endpoint(cluster: Cluster, name: str) -> KubeObject:
    (found,) = objects(cluster)["PodMonitor", name]["spec"]["podMetricsEndpoints"]
    return {key: value for key, value in found.items() if key != "relabelings"}


def test_brokers_and_lag_exporter_serve_metrics_with_their_certificates_and_the_token() -> None:
    (broker, _), (exporter, container) = pods(PROTECTED)
    settings = pod_properties(PROTECTED, 0, ExternalAccess())
    assert settings["http.ssl.certificate.location"] == "/etc/barnabas-certificates/broker.pem"
    assert settings["http.bearer.token.location"] == "/etc/barnabas-metrics/token"
    options = dict(each.split("=", 1) for each in container["args"] if "=" in each)
    assert options["--server.tls.cert-file"] == "/etc/barnabas-client/client.pem"
    assert options["--server.token-file"] == "/etc/barnabas-metrics/token"
    for pod, within in pods(PROTECTED):
        (volume,) = (each["secret"] for each in pod["volumes"] if each["name"] == "barnabas-metrics-token")
        assert (volume["secretName"], volume["items"]) == ("scraper", [{"key": "bearer", "path": "token"}])
        paths = {each["name"]: each["mountPath"] for each in within["volumeMounts"]}
        assert paths["barnabas-metrics-token"] == "/etc/barnabas-metrics"
        assert probes(within) == {"HTTPS"}
    assert broker != exporter


def test_pod_monitors_have_the_authority_the_server_name_and_the_token() -> None:
    for name in ("one-broker", "one-lag-exporter"):
        assert endpoint(PROTECTED, name) == {
            "port": "http",
            "path": "/metrics",
            "scheme": "https",
            "tlsConfig": {
                "ca": {"secret": {"name": "one-cluster-ca-cert", "key": "ca.crt"}},
                "serverName": f"{name}.air.svc",
            },
            "authorization": {"type": "Bearer", "credentials": {"name": "scraper", "key": "bearer"}},
        }


def test_the_certificates_have_the_names_that_prometheus_checks() -> None:
    external, moment = ExternalAccess(), Moment({}, {}, NOW, lambda: "a password")
    hosts = broker_hosts(PROTECTED, external, frozenset())
    plan = plan_secrets(PROTECTED, hosts, external, moment)
    assert isinstance(plan, SecretsPlan)
    secrets = plan.by_name
    for name, secret, key in (
        ("one-broker", "one-broker-certificates", "broker.pem"),
        ("one-lag-exporter", "one-lag-exporter", "client.pem"),
    ):
        (certificate,) = certificates_in(secrets[secret][key].decode())
        assert f"{name}.air.svc" in hosts_of(certificate)
    assert plan_secrets(PROTECTED, hosts, external, moment._replace(found=secrets)) == plan


def test_metrics_have_neither_tls_nor_a_token_by_default() -> None:
    assert not [
        each for each in pod_properties(OPEN, 0, ExternalAccess()) if each.startswith(("http.ssl", "http.bearer"))
    ]
    for pod, container in pods(OPEN):
        assert "barnabas-metrics-token" not in {each["name"] for each in pod["volumes"]}
        assert probes(container) == {None}
        assert not [each for each in container["args"] if each.startswith("--server.")]
    for name in ("one-broker", "one-lag-exporter"):
        assert endpoint(OPEN, name) == {"port": "http", "path": "/metrics"}


def test_brokers_restart_if_the_protection_of_metrics_changes() -> None:
    assert restart_hash(OPEN, ExternalAccess()) != restart_hash(PROTECTED, ExternalAccess())


def test_pods_without_certificates_serve_metrics_without_tls_and_token() -> None:
    before = replace(PROTECTED, status=ClusterStatus())
    assert (
        endpoint(before, "one-broker") == endpoint(before, "one-lag-exporter") == {"port": "http", "path": "/metrics"}
    )
    _, (_, exporter) = pods(before)
    assert probes(exporter) == {None}


def test_a_token_for_brokers_without_certificates_is_refused() -> None:
    spec = ClusterSpec(listeners=(Listener(name="plain"),), insecure=True, metrics=METRICS)
    (message,) = (message for _, message in pod_problems(replace(OPEN, spec=spec)))
    assert message.startswith(
        "spec.metrics.tokenSecret.name is scraper, but the brokers have no certificates; "
        "remove spec.metrics, or set any"
    )
    assert message.endswith("because without TLS the token would be sent in clear")
    (of_config,) = (
        message
        for _, message in pod_problems(replace(OPEN, spec=replace(OPEN.spec, config={"http.ssl.key.location": "/k"})))
    )
    assert of_config == "spec.config must not set http.ssl.key.location, because the value comes from spec.metrics"
