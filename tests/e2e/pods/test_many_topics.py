"""Many Topics are created, changed and deleted at once; the times are printed."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.pods.castle import NAME, Castle, topic_manifest
from e2e.pods.figures import Figures
from harness.deadline import wait_for

TOPICS = 1_000
CHANGED = TOPICS // 5
SECONDS_MAX = 300.0
POLL_S = 1.0  # Listing all Topics slows down the operator and the brokers.
MINE, LABEL = "many-", "many"


def manifests(count: int, partitions: int) -> str:
    return "\n---\n".join(manifest(f"{MINE}{number:04d}", partitions) for number in range(count))


def manifest(name: str, partitions: int) -> str:
    topic = json.loads(topic_manifest(name, partitions, deletionPolicy="Delete"))
    topic["metadata"]["labels"] = {LABEL: "yes"}
    return json.dumps(topic)


def ready(castle: Castle, partitions: int) -> int:
    """Return how many Topics are ready with this number of partitions."""
    wanted = ("True", NAME, partitions)
    return sum((row["Ready"], row["Cluster"], row["Partitions"]) == wanted for row in rows(castle))


def rows(castle: Castle) -> list[dict[str, Any]]:
    """Return the test's Topics as `kubectl get` shows them."""
    return castle.rows("topic", LABEL)


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
