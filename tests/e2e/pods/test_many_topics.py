"""Many Topics are created, changed and deleted at once; a secured Cluster rests with them. The times are printed."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.pods.castle import EXAMPLES, NAME, Castle, topic_manifest
from e2e.pods.figures import Figures
from harness.deadline import wait_for
from local_kubernetes.kubectl import PATIENTLY

TOPICS = 1_000
CHANGED = TOPICS // 5
SECONDS_MAX = 300.0
POLL_S = 1.0  # Listing all Topics slows down the operator and the brokers.
MINE, LABEL = "many-", "many"
RESTING = "rest"
SETTLE_S = 60.0
REST_S = 300.0
"""Long enough for several rounds of the operator, which reads everything again once a minute."""
CPU_SECONDS = """
import glob, os
files = set(glob.glob('/proc/[0-9]*/stat')) - {f'/proc/{os.getpid()}/stat'}
ticks = (open(each).read().rpartition(')')[2].split()[11:13] for each in files)
print(sum(int(user) + int(system) for user, system in ticks) / os.sysconf('SC_CLK_TCK'))
"""


def manifests(count: int, partitions: int, cluster: str = NAME) -> str:
    return "\n---\n".join(manifest(f"{MINE}{number:04d}", partitions, cluster) for number in range(count))


def manifest(name: str, partitions: int, cluster: str) -> str:
    topic = json.loads(topic_manifest(name, partitions, cluster=cluster, deletionPolicy="Delete"))
    topic["metadata"]["labels"] = {LABEL: "yes"}
    return json.dumps(topic)


def ready(castle: Castle, partitions: int, cluster: str = NAME) -> int:
    """Return how many Topics are ready with this number of partitions."""
    wanted = ("True", cluster, partitions)
    return sum((row["Ready"], row["Cluster"], row["Partitions"]) == wanted for row in rows(castle))


def rows(castle: Castle) -> list[dict[str, Any]]:
    """Return the test's Topics as `kubectl get` shows them."""
    return castle.rows("topic", LABEL)


def cpu_seconds(castle: Castle, cluster: str) -> dict[str, float]:
    """Return user and system time of the processes in each pod of the operator and the Cluster, by the pod's name."""
    selectors = ("app.kubernetes.io/name=barnabas-operator", f"barnabas.dev/cluster={cluster}")
    pods = [pod["metadata"]["name"] for selector in selectors for pod in castle.items("pod", selector)]
    return {pod: float(castle.kubectl("exec", pod, "--", "python", "-c", CPU_SECONDS)) for pod in pods}


@contextmanager
def timed(figures: Figures, what: str, aim: str = "") -> Iterator[None]:
    began_s = time.monotonic()
    yield
    figures.tell(what, f"{time.monotonic() - began_s:.1f} s", aim)


def operator_bytes(castle: Castle) -> int:
    """Return the resident memory of the operator."""
    read = "print(open('/proc/1/statm').read())"
    text = castle.kubectl("exec", "deploy/barnabas-operator", "--", "python", "-c", read)
    return int(text.split()[1]) * 4096


@pytest.mark.soak(only=True)
def test_many_topics_are_created_changed_and_deleted(castle: Castle, figures: Figures) -> None:
    others = set(castle.kubectl("get", "topics", "-oname").split())
    with timed(figures, f"{TOPICS} Topics of 3 partitions x 3 applied, until all are ready", "40 s for 1,000"):
        castle.kubectl("apply", "--server-side", "-f-", stdin=manifests(TOPICS, 3))
        wait_for(lambda: ready(castle, 3), lambda count: count == TOPICS, SECONDS_MAX, POLL_S)
    figures.tell("memory of the operator with them", f"{operator_bytes(castle) / 1e6:.0f} MB")
    with timed(figures, f"{CHANGED} of them raised to 4 partitions"):
        castle.kubectl("apply", "--server-side", "-f-", stdin=manifests(CHANGED, 4))
        wait_for(lambda: ready(castle, 4), lambda count: count == CHANGED, SECONDS_MAX, POLL_S)
    with timed(figures, f"{TOPICS} deleted, topics too"):
        castle.kubectl("delete", "topics", f"--selector={LABEL}", "--wait=false")
        wait_for(lambda: rows(castle), lambda left: not left, SECONDS_MAX, POLL_S)
    documents = json.loads(castle.kubectl("get", "statedocuments", "-o=json"))["items"]
    assert not [each for each in documents if each["spec"]["key"].startswith(f"topics/{MINE}")]
    assert set(castle.kubectl("get", "topics", "-oname").split()) == others


@pytest.mark.soak(only=True)
def test_a_secured_cluster_with_many_topics_rests(castle: Castle, figures: Figures) -> None:
    secured = (EXAMPLES / "secured-cluster.yaml").read_text(encoding="utf-8")
    castle.kubectl("apply", "-f-", stdin=secured.replace(f"name: {NAME}\n", f"name: {RESTING}\n", 1))
    castle.kubectl("wait", "--for=condition=Ready", f"cluster/{RESTING}", PATIENTLY)
    castle.kubectl("apply", "--server-side", "-f-", stdin=manifests(TOPICS, 3, RESTING))
    wait_for(lambda: ready(castle, 3, RESTING), lambda count: count == TOPICS, SECONDS_MAX, POLL_S)
    time.sleep(SETTLE_S)
    before, began_s = cpu_seconds(castle, RESTING), time.monotonic()
    time.sleep(REST_S)
    after, seconds = cpu_seconds(castle, RESTING), time.monotonic() - began_s
    percents = {pod: (used_s - before[pod]) / seconds * 100 for pod, used_s in after.items()}
    print(*(f"{pod}: {percent:.2f} % of a core" for pod, percent in percents.items()), sep="\n")
    what = f"CPU of a secured Cluster at rest with {TOPICS} Topics of 3 partitions x 3, {len(after)} pods, operator too"
    figures.tell(what, f"{sum(percents.values()):.1f} % of a core", "5 %")
    castle.kubectl("delete", "topics", f"--selector={LABEL}", "--wait=false")
    castle.kubectl("delete", "cluster", RESTING, "--wait=false")
