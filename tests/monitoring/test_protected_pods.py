"""Prometheus scrapes a broker with the settings and certificates of a pod, configured as the PodMonitor is."""

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from barnabas_operator.manifests.kube_object import NOBODY_ELSE, pod_monitor
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, broker_hosts, plan_secrets
from barnabas_operator.planning.brokers.pod_properties import (
    CERTIFICATES_FOLDER,
    TOKEN_FILE,
    TOKEN_FOLDER,
    pod_properties,
)
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.resources.cluster import Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.maintenance_run import SecretKeyRef
from barnabas_operator.resources.security import Authentication, Authorization, Metrics
from harness.barnabas_server import prepare_barnabas
from harness.deadline import wait_for
from harness.server_process import free_port
from monitoring.prometheus_server import Job, prometheus

HOST: Final = "127.0.0.1"
CLUSTER: Final = Cluster(
    metadata=ObjectMeta(name="one", namespace="air", uid="u-1"),
    spec=ClusterSpec(
        listeners=(Listener(name="users", tls=True, authentication=Authentication(type="tls")),),
        authorization=Authorization(),
        metrics=Metrics(token_secret=SecretKeyRef(name="scraper", key="token")),
    ),
)


class Pod(NamedTuple):
    """The address of a broker's pages, and the folder with the files that its pod mounts."""

    address: str
    folder: Path


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    folder, external, http = tmp_path_factory.mktemp("pod"), ExternalAccess(), f"{HOST}:{free_port()}"
    moment = Moment({}, {}, dt.datetime.now(dt.UTC), lambda: "a password")
    plan = plan_secrets(CLUSTER, broker_hosts(CLUSTER, external, frozenset()), external, moment)
    assert isinstance(plan, SecretsPlan)
    for name, content in plan.by_name["one-broker-certificates"].items():
        (folder / name).write_bytes(content)
    (folder / "ca.crt").write_bytes(plan.by_name["one-cluster-ca-cert"]["ca.crt"])
    (folder / TOKEN_FILE).write_text("geheim")
    addresses = {name: f"{name}://{HOST}:{free_port()}" for name in ("REPLICATION-TLS", "USERS")}
    own = {name: ",".join(addresses.values()) for name in ("listeners", "advertised.listeners")}
    own |= {"http.listener": http, "log.dirs": str(folder / "logs")}
    own |= {"metadata.store": f"sqlite:///{folder / 'metadata.sqlite'}", "broker.id": "0"}
    mounted = {
        name: text.replace(CERTIFICATES_FOLDER, str(folder)).replace(TOKEN_FOLDER, str(folder))
        for name, text in pod_properties(CLUSTER, 0, external).items()
    }
    broker = prepare_barnabas(folder, mounted | own)
    broker.port = int(addresses["USERS"].rpartition(":")[2])
    with closing(broker):
        broker.launch()
        broker.await_port()
        yield Pod(http, folder)


def access(pod: Pod) -> dict[str, Any]:
    """Return the scrape configuration that Prometheus' operator makes of the PodMonitor, with the Secrets' files."""
    spec: Any = pod_monitor(CLUSTER, NOBODY_ELSE)["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    tls, credentials = endpoint["tlsConfig"], endpoint["authorization"]["credentials"]
    assert credentials == {"name": "scraper", "key": "token"}
    return {
        "scheme": endpoint["scheme"],
        "tls_config": {"ca_file": str(pod.folder / tls["ca"]["secret"]["key"]), "server_name": tls["serverName"]},
        "authorization": {"type": "Bearer", "credentials_file": str(pod.folder / credentials["key"])},
    }


def test_prometheus_scrapes_a_pod_as_its_pod_monitor_says(pod: Pod, tmp_path: Path) -> None:
    given = access(pod)
    without = {name: value for name, value in given.items() if name != "authorization"}
    jobs = [Job("as it says", [(pod.address, {})], access=given), Job("no token", [(pod.address, {})], access=without)]
    with prometheus(tmp_path, jobs) as running:
        wait_for(lambda: running.now("up == 1"), lambda up: [each.labels["job"] for each in up] == ["as it says"])
        wait_for(lambda: running.now("up == 0"), lambda up: [each.labels["job"] for each in up] == ["no token"])
