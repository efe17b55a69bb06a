"""Brokers roll through the settings of each stage from open to secured and back under traffic; no record is lost."""

import datetime as dt
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from barnabas_operator.planning.brokers.broker_security import SecurityStage
from barnabas_operator.planning.brokers.cluster_secrets import Moment, SecretsPlan, plan_secrets
from barnabas_operator.planning.brokers.pod_properties import CERTIFICATES_FOLDER, pod_properties
from barnabas_operator.planning.brokers.pods import ExternalAccess
from barnabas_operator.resources.cluster import Brokers, Cluster, ClusterSpec, Listener
from barnabas_operator.resources.kind import ObjectMeta
from barnabas_operator.resources.security import Authentication
from harness.cluster import prepare_cluster
from harness.server_process import free_port
from harness.soak import took
from torture.secured_traffic import PARTITIONS, TOPIC, Traffic

GAP_S_MAX: Final = 1.0
OPEN, OFFERED, USED, SECURED = SecurityStage
PLAIN = Listener(name="plain")
SAFE = Listener(name="safe", port=9094, tls=True, authentication=Authentication(type="scram-sha-512"))
DECLARED: Final = Cluster(
    metadata=ObjectMeta(name="one"), spec=ClusterSpec(brokers=Brokers(replicas=3), listeners=(PLAIN, SAFE))
)
DECLARED_OPEN: Final = Cluster(
    metadata=ObjectMeta(name="one"), spec=ClusterSpec(brokers=Brokers(replicas=3), listeners=(PLAIN,))
)
OF_PODS: Final = {"node.id", "http.listener", "log.dirs", "metadata.store", "listeners", "advertised.listeners"}


class Staged:
    """Brokers with pods' ports mapped to ports of this machine; clients use the port of `plain`."""

    def __init__(self, folder: Path) -> None:
        external, self._folder = ExternalAccess(), folder
        moment = Moment({}, {}, dt.datetime.now(dt.UTC), lambda: "a password")
        plan = plan_secrets(DECLARED, frozenset({"localhost"}), external, moment)
        assert isinstance(plan, SecretsPlan)
        for name, content in plan.by_name["one-broker-certificates"].items():
            (folder / name).write_bytes(content)
        self.cluster = prepare_cluster(folder / "cluster", properties={"min.insync.replicas": "2"})
        brokers = self.cluster.brokers
        self._commands = {number: [*broker.command] for number, broker in brokers.items()}
        self._ports = {
            number: {PLAIN.port: broker.port, **{port: free_port() for port in (9090, 9091, SAFE.port)}}
            for number, broker in brokers.items()
        }

    def choose(self, number: int, stage: SecurityStage) -> None:
        """Give a stopped broker the settings of a stage for its next start."""
        declared = DECLARED_OPEN if stage is OPEN else DECLARED
        settings = pod_properties(declared, number, ExternalAccess(stage=stage))
        names = [each.partition("://")[0] for each in settings["listeners"].split(",")]
        ports = [int(each.rpartition(":")[2]) for each in settings["listeners"].split(",")]
        bound = ",".join(
            f"{name}://localhost:{self._ports[number][port]}" for name, port in zip(names, ports, strict=True)
        )
        chosen = {name: text for name, text in settings.items() if name not in OF_PODS} | {"listeners": bound}
        overrides = [
            word
            for name, text in chosen.items()
            for word in ("--override", f"{name}={text.replace(CERTIFICATES_FOLDER, str(self._folder))}")
        ]
        self.cluster.brokers[number].command = [*self._commands[number], *overrides]

    def roll(self, stage: SecurityStage) -> None:
        """Restart one broker after the other with the settings of a stage."""
        for number in self.cluster.brokers:
            self.cluster.stop(number)
            self.choose(number, stage)
            self.cluster.start(number)
            self.cluster.wait_until_full()


@pytest.mark.soak(only=True)
@pytest.mark.timeout(1200)
def test_rolls_from_open_to_secured_and_back_lose_no_record(tmp_path: Path) -> None:
    staged = Staged(tmp_path)
    with closing(staged.cluster) as cluster:
        for number in cluster.brokers:
            staged.choose(number, OPEN)
        cluster.start()
        cluster.create_topic(TOPIC, PARTITIONS, 3)
        traffic = Traffic(cluster)
        traffic.use(cluster.bootstrap, {})
        for stage in (OFFERED, USED, SECURED, USED, OFFERED, OPEN):
            staged.roll(stage)
            traffic.await_answers()
        assert traffic.problems() == []
        assert "Traceback" not in cluster.logs_text()
    print(f"{len(traffic.history.acknowledged)} records acknowledged through 18 restarts")
    took("the longest time without an acknowledgement", traffic.longest_gap_s, GAP_S_MAX)
