"""`barnabas up` over manifest files: the cluster gets what they declare, and faults are reported and survived."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from barnabas_operator.app.local_cluster import any_free_port
from harness.command_here import barnabas_here
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import CLUSTER, RunningUp, alive, topic_manifest

Run = Callable[..., subprocess.CompletedProcess[str]]

FLIGHTS = topic_manifest("flights", "partitions: 6", "config:", "  retention.ms: 86400000")


def partitions(up: RunningUp, topic: str) -> int:
    """Return the number of the topic's partitions as a client sees it."""
    topics = AdminClient({"bootstrap.servers": up.bootstrap}).list_topics(timeout=PATIENCE_S).topics
    return len(topics[topic].partitions) if topic in topics else 0


def config(up: RunningUp, topic: str, name: str) -> str:
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    client = AdminClient({"bootstrap.servers": up.bootstrap})  # If it were collected, the request would end, too.
    (future,) = client.describe_configs([resource]).values()
    return str(future.result(PATIENCE_S)[name].value)


def test_up_creates_declared_topics_and_follows_edits(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    assert partitions(up, "flights") == 6
    assert config(up, "flights", "retention.ms") == "86400000"
    log_dirs = [up.data / "broker-0" / f"volume-{number}" for number in (0, 1)]
    assert [len(list(folder.glob("flights-*"))) for folder in log_dirs] == [3, 3]

    up.write("topics.yaml", FLIGHTS.replace("partitions: 6", "partitions: 12"))
    wait_for(lambda: up.status("flights").partitions == 12)
    assert partitions(up, "flights") == 12
    assert (up.status("flights").observed_generation, up.reason("flights")) == (2, "Reconciled")

    up.write("more.yaml", topic_manifest("airports", "topicName: Airports_2013"))
    wait_for(lambda: partitions(up, "Airports_2013") == 1)


def test_a_broken_manifest_is_reported_with_its_position_and_changes_nothing(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    up.write("topics.yaml", FLIGHTS.replace("partitions: 6", "partitions: 7").replace("config:", "confg:"))
    wait_for(lambda: "topics.yaml:7:3: spec.confg is not a field" in up.log())
    up.write("topics.yaml", FLIGHTS.replace("partitions: 6", "partitions: [7"))
    wait_for(lambda: "topics.yaml:7:9: the text is not YAML" in up.log())
    assert partitions(up, "flights") == 6
    up.write("topics.yaml", FLIGHTS.replace("partitions: 6", "partitions: 8"))
    wait_for(lambda: up.status("flights").partitions == 8)


def test_up_sets_a_declared_config_back_after_another_client_changed_it(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS + "    segment.ms: ~\n")
    up.start()
    client = AdminClient({"bootstrap.servers": up.bootstrap})
    foreign = {"retention.ms": "1000", "cleanup.policy": "compact", "segment.ms": "1000000"}
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in foreign.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, "flights", incremental_configs=entries)
    (future,) = client.incremental_alter_configs([resource]).values()
    future.result(PATIENCE_S)
    wait_for(lambda: "set configs of flights: retention.ms=86400000, cleanup.policy to its default" in up.log())
    assert config(up, "flights", "retention.ms") == "86400000"
    assert config(up, "flights", "cleanup.policy") == "delete"
    assert config(up, "flights", "segment.ms") == "1000000"


def test_a_broker_that_dies_is_started_again(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    first = up.broker_pid()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: "broker 0 is ready again" in up.log())
    assert "broker 0 died (signal SIGKILL); starting it again in 0.5 s" in up.log()
    assert up.broker_pid() != first
    assert partitions(up, "flights") == 6


def test_up_stops_its_broker_and_the_next_run_keeps_address_topic_and_generation(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    bootstrap, topic_id, broker = up.bootstrap, up.status("flights").topic_id, up.broker_pid()
    assert up.stop() == 0
    assert not alive(broker)
    assert up.cluster_reason() == "Stopped"
    up.start()
    wait_for(lambda: up.reason("flights") == "Reconciled")
    assert (up.bootstrap, up.status("flights").topic_id) == (bootstrap, topic_id)
    assert up.status("flights").observed_generation == 1


def test_up_deletes_a_topic_whose_manifest_was_removed_between_two_runs(up: RunningUp) -> None:
    up.write("topics.yaml", topic_manifest("carriers", "deletionPolicy: Delete"))
    up.start()
    wait_for(lambda: up.reason("carriers") == "Reconciled")
    up.stop()
    (up.manifests / "topics.yaml").unlink()
    up.start()
    wait_for(lambda: partitions(up, "carriers") == 0)


def test_up_first_stops_a_broker_that_a_killed_run_left_behind(up: RunningUp) -> None:
    up.start()
    left = up.broker_pid()
    up.kill()
    assert alive(left)
    up.start()
    assert not alive(left)
    assert f"broker 0 of an earlier run is still running; stopping the old process {left}" in up.log()


@pytest.mark.parametrize("unwritten", [(), ("memory.json", "status.yaml")])
def test_brokers_that_a_killed_run_left_behind_give_their_declared_ports_to_the_next_run(
    up: RunningUp, unwritten: Sequence[str]
) -> None:
    up.write("cluster.yaml", CLUSTER.replace("port: 0", f"port: {any_free_port(set())}"))
    up.start()
    bootstrap, left = up.bootstrap, up.broker_pid()
    up.kill()
    assert alive(left)
    for name in unwritten:  # As if it had been killed before it wrote its first status.
        (up.data / name).unlink()
    up.start()
    assert not alive(left)
    assert up.bootstrap == bootstrap


def test_warnings_have_the_time_as_all_lines_have(tmp_path: Path) -> None:
    warns = f"up.main(['-f', '{tmp_path / 'nothing'}']); logging.getLogger('kafka-client').warning('broker 1 is away')"
    code = f"import logging; from barnabas_operator.app import up; {warns}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert re.fullmatch(r"\d\d:\d\d:\d\d broker 1 is away\n", ran.stderr)


def test_a_second_up_on_the_same_data_names_the_process_that_uses_it(up: RunningUp) -> None:
    up.start()
    second = subprocess.run(up.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert second.returncode == 1
    assert f"{up.data} is in use by another `barnabas up`, process {up.pid}" in second.stdout


def test_a_changed_cluster_restarts_its_broker_and_an_unsupported_change_does_not(up: RunningUp) -> None:
    up.write("topics.yaml", FLIGHTS)
    up.start()
    first = up.broker_pid()
    up.write("cluster.yaml", CLUSTER.replace("      - id: 1\n", ""))
    wait_for(lambda: "Removing volumes is not supported: spec.storage.volumes lacks the id 1" in up.log())
    wait_for(lambda: up.cluster_reason() == "NotSupported")
    assert up.broker_pid() == first
    up.write("cluster.yaml", CLUSTER.replace("      - id: 1\n", "      - id: 1\n      - id: 2\n"))
    wait_for(lambda: (up.data / "broker-0" / "volume-2").is_dir() and up.cluster_reason() == "BrokersReady")
    assert up.broker_pid() != first
    assert partitions(up, "flights") == 6


USAGE: dict[str, tuple[str, int, str]] = {
    "a broken manifest": ("kind: Topic\n", 2, "cluster.yaml:1:1: apiVersion is missing"),
    "no Cluster": (FLIGHTS, 2, "no manifest declares a Cluster; declare exactly one Cluster"),
    "an invalid setting": (
        CLUSTER + "    num.partitions: 0\n",
        2,
        "cluster.yaml:16:21: spec.config num.partitions=0: must be an integer, at least 1",
    ),
}


@pytest.mark.parametrize(("text", "status", "message"), USAGE.values(), ids=USAGE.keys())
def test_up_reports_bad_manifests_and_starts_nothing(tmp_path: Path, text: str, status: int, message: str) -> None:
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    done = barnabas_here("up", "-f", str(tmp_path), "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, message in done.stdout) == (status, True), done.stdout
    assert not (tmp_path / "data").exists()


def test_a_missing_directory_is_bad_usage(tmp_path: Path) -> None:
    done = barnabas_here("up", "-f", str(tmp_path / "nowhere"), "--data-dir", str(tmp_path / "data"))
    assert (done.returncode, "there is no such file or directory" in done.stdout) == (2, True)
    assert barnabas_here("up").returncode == 2


def test_up_names_a_port_that_another_program_uses(barnabas: Run, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("port: 0", f"port: {port}"), encoding="utf-8")
        done = barnabas("up", "-f", str(tmp_path), "--data-dir", str(tmp_path / "data"))
    assert done.returncode == 1
    assert f"another program uses port {port}; choose another port in spec.listeners[0].port" in done.stdout


def test_up_refuses_the_data_directory_of_a_cluster_with_another_name(up: RunningUp) -> None:
    up.start()
    up.stop()
    up.write("cluster.yaml", CLUSTER.replace("quickstart", "other"))
    done = subprocess.run(up.command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "the data directory belongs to the Cluster quickstart, not to other" in done.stdout
