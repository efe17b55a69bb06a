"""`kubectl barnabas`, and the console of the chart, on the pods of a Cluster."""

import json
import signal
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from e2e.pods.castle import Castle
from harness.deadline import wait_for
from harness.running_console import Visitor
from harness.stock_client import StockClient
from local_kubernetes.plugin import plugin, run_plugin

pytestmark = pytest.mark.soak(only=True)
TOPIC = "parcels"
GROUP = "couriers"
LINES_MAX = 2_000


@pytest.fixture(scope="module")
def filled(installed: Castle) -> Castle:
    """Return the Cluster, with a topic of three records. A group has read one of them."""
    installed.await_ready()
    installed.create_topic(TOPIC, 1, deletionPolicy="Delete")
    client = StockClient(installed.bootstrap)
    client.write(TOPIC, [b"one", b"two", b"three"])
    client.commit(GROUP, TopicPartition(TOPIC, 0, 1))
    return installed


def run(castle: Castle, *arguments: str) -> str:
    code, out, errors = run_plugin(castle.cluster_kubectl, *arguments, "-n", castle.namespace)
    assert code == 0, errors
    return out


@contextmanager
def running(castle: Castle, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command that goes on, and end it as Ctrl-C does."""
    process = plugin(castle.cluster_kubectl, *arguments, "-n", castle.namespace)
    try:
        yield process
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    finally:
        process.kill()


def lines_until(process: subprocess.Popen[str], words: str) -> list[str]:
    """Read lines until one of them has these words."""
    assert process.stdout is not None
    lines: list[str] = []
    while not any(words in each for each in lines):
        line = process.stdout.readline()
        assert line, (lines, process.stderr and process.stderr.read())
        assert len(lines) < LINES_MAX
        lines.append(line)
    return lines


def test_the_plugin_shows_status_and_lag(filled: Castle) -> None:
    assert TOPIC in run(filled, "status")
    (topic,) = [each for each in json.loads(run(filled, "status", "-o", "json"))["topics"] if each["name"] == TOPIC]
    assert topic
    (line,) = [each for each in run(filled, "lag").splitlines() if each.split()[:2] == [GROUP, TOPIC]]
    assert "2" in line.split()
    with running(filled, "top") as process:
        lines_until(process, f"{GROUP}: Empty, 0 members, lag 2")


def test_the_plugin_prints_records_as_they_come(filled: Castle) -> None:
    with running(filled, "tail", TOPIC, "--from", "earliest") as process:
        lines_until(process, "three")
        StockClient(filled.bootstrap).write(TOPIC, [b"just now"])
        lines_until(process, "just now")


def test_the_plugin_says_why_a_broker_does_not_restart(filled: Castle) -> None:
    pod = sorted(filled.pods())[0]
    assert run(filled, "why", pod).startswith(f"{pod} is ready, and need not restart: ")
    code, _, errors = run_plugin(filled.cluster_kubectl, "why", "nobody", "-n", filled.namespace)
    assert (code, "not found" in errors) == (1, True)


def test_the_plugin_shows_the_plan_of_a_reset(filled: Castle) -> None:
    manifest = {
        "apiVersion": "barnabas.dev/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"name": GROUP},
        "spec": {"cluster": filled.name},
    }
    filled.kubectl("apply", "-f-", stdin=json.dumps(manifest))
    plan = run(filled, "reset", GROUP, "--to", "earliest", "--dry-run").splitlines()
    assert plan[0].startswith("DryRun: ")
    assert plan[-1].split() == [TOPIC, "0", "1", "0"]


def test_the_archive_for_support_has_logs_and_metrics_and_no_password(filled: Castle, tmp_path: Path) -> None:
    file = tmp_path / "dump.tar.gz"
    printed = run(filled, "dump", str(file))
    with tarfile.open(file) as tar:
        names = [each.partition("/")[2] for each in tar.getnames()]
        texts = {each: read.read() for each in tar.getnames() if (read := tar.extractfile(each))}
    pod = sorted(filled.pods())[0]
    wanted = {"CONTENTS.txt", "events.json", "nodes.txt", "logs/operator.log", f"metrics/{pod}.txt"}
    assert wanted | {f"describe/{pod}.txt", f"logs/{pod}-broker.log", "resources/clusters.json"} <= set(names)
    missing = [each for each in printed.splitlines() if each.lstrip().startswith("missing")]
    assert all("previous" in each for each in missing), missing
    secrets = json.loads(filled.kubectl("get", "secrets", "-o=json"))["items"]
    values = {value for each in secrets for value in each.get("data", {}).values()}
    assert not [name for name, text in texts.items() for value in values if len(value) > 8 and value.encode() in text]


def test_the_console_of_the_chart_shows_the_cluster_and_its_manifests(filled: Castle) -> None:
    address = f"console.bootstrap={filled.name}-bootstrap:9092"
    filled.release("upgrade", "console.enabled=true", address, f"console.kubernetes.namespace={filled.namespace}")
    try:
        with filled.cluster_kubectl.forwarded(filled.namespace, "service/barnabas-console", 80) as port:
            visitor = Visitor(port)
            found = wait_for(
                lambda: visitor.get("/topics?search=parcels", "application/json"), lambda answer: answer.status == 200
            ).json
            assert [(each["name"], each["groups"]) for each in found["rows"]] == [(TOPIC, 1)]
            assert visitor.json("/")["roll"] is None
            assert visitor.json(f"/topics/{TOPIC}")["manifest"]["kind"] == "Topic"
            began_s = time.monotonic()
            assert visitor.get("/topics").status == 200
            print(f"a page of the console in its pod took {time.monotonic() - began_s:.3f} s")
    finally:
        filled.release("upgrade")
