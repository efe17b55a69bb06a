"""Apache Kafka's own console tools, outside of the cluster and in a pod of it."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.pods.castle import NAME, Castle
from e2e.pods.providers import Cluster
from harness.kafka_jars import JarsMissing, jars_folder, java_command
from harness.require import missing
from local_kubernetes.binaries import CannotStart
from local_kubernetes.images import BASE_IMAGE

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LETTERS = "first\nsecond\nthird\n"
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder of the tools."""
    try:
        if shutil.which("java") is None:
            raise JarsMissing("java is not on the machine")
        return jars_folder()
    except JarsMissing as reason:
        missing(CannotStart(str(reason)))


def _to_write(bootstrap: str, topic: str) -> list[str]:
    settings = ("--producer-property", "acks=all", "--producer-property", "enable.idempotence=true")
    return java_command(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *settings)


def _to_read(bootstrap: str, topic: str) -> list[str]:
    until = ("--max-messages", "3", "--timeout-ms", "60000")
    return java_command(CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", *until)


def _run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javas_console_tools_write_and_read_from_outside(castle: Castle, jars: Path) -> None:
    castle.create_topic("outside", 1)
    _run(_to_write(castle.bootstrap, "outside"), LETTERS)
    assert _run(_to_read(castle.bootstrap, "outside")) == LETTERS


def test_javas_console_tools_write_and_read_in_a_pod(cluster: Cluster, castle: Castle, jars: Path) -> None:
    """The node's files are this machine's: the pod borrows Java and the tools from it."""
    if os.environ.get("E2E") != "local":
        pytest.skip("the node has no Java to lend")
    castle.create_topic("inside", 1)
    java = Path(shutil.which("java") or "java").resolve()
    # Debian's Java has its settings below /etc.
    settings = (java.parents[1] / "conf" / "net.properties").resolve().parent
    lent = [java.parents[1], settings, jars, jars.parents[1] / "tests" / "compat" / "java"]
    volumes = [{"name": f"lent{number}", "hostPath": {"path": str(path)}} for number, path in enumerate(lent)]
    mounts = [{"name": f"lent{number}", "mountPath": str(path), "readOnly": True} for number, path in enumerate(lent)]
    container = {"name": "tools", "image": cluster.image(BASE_IMAGE), "volumeMounts": mounts}
    container |= {"imagePullPolicy": "IfNotPresent", "command": ["sleep", "infinity"]}
    spec = {"containers": [container], "volumes": volumes, "terminationGracePeriodSeconds": 0}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "java-tools"}, "spec": spec}
    castle.kubectl("apply", "-f-", stdin=json.dumps(pod))
    castle.kubectl("wait", "--for=condition=Ready", "pod/java-tools", "--timeout=60s")
    bootstrap = f"{NAME}-bootstrap:9092"
    write, read = ([str(java), *each(bootstrap, "inside")[1:]] for each in (_to_write, _to_read))
    castle.kubectl("exec", "-i", "java-tools", "--", *write, stdin=LETTERS)
    assert castle.kubectl("exec", "java-tools", "--", *read) == LETTERS
