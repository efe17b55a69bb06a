"""A thousand Topics at once: made, changed and deleted. What it took is printed (`-s` shows it)."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.castle import Castle, topic_manifest
from harness.deadline import wait_for

TOPICS = 1_000
CHANGED = 200
SECONDS_MAX = 600.0
READY = '-o=jsonpath={range .items[*]}{.metadata.name}={.status.partitions}={.status.conditions[0].status}{"\\n"}{end}'


def name_of(number: int) -> str:
    return f"many-{number:04d}"


def manifests(count: int, partitions: int) -> str:
    return "\n---\n".join(topic_manifest(name_of(each), partitions, deletionPolicy="Delete") for each in range(count))


def ready(castle: Castle, partitions: int) -> int:
    """How many have so many partitions and say that they are ready."""
    lines = castle.kubectl("get", "topics", READY).splitlines()
    return sum(line.startswith("many-") and line.endswith(f"={partitions}=True") for line in lines)


@contextmanager
def told(what: str) -> Iterator[None]:
    began_s = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - began_s:.1f} s")


def operator_bytes(castle: Castle) -> int:
    """Resident memory of the operator."""
    text = castle.kubectl("exec", "deploy/barnabas-operator", "--", "cat", "/proc/1/statm")
    return int(text.split()[1]) * 4096


def test_a_thousand_topics_are_made_changed_and_deleted(castle: Castle) -> None:
    with told(f"{TOPICS} topics of 3 partitions x 3 applied and ready"):
        castle.kubectl("apply", "--server-side", "-f-", stdin=manifests(TOPICS, 3))
        wait_for(lambda: ready(castle, 3), lambda count: count == TOPICS, SECONDS_MAX)
    print(f"operator: {operator_bytes(castle) / 1e6:.0f} MB")
    with told(f"{CHANGED} of them raised to 4 partitions"):
        castle.kubectl("apply", "--server-side", "-f-", stdin=manifests(CHANGED, 4))
        wait_for(lambda: ready(castle, 4), lambda count: count == CHANGED, SECONDS_MAX)
    with told(f"{TOPICS} deleted"):
        castle.kubectl("delete", "topics", *map(name_of, range(TOPICS)))
    documents = json.loads(castle.kubectl("get", "statedocuments", "-o=json"))["items"]
    assert not [each for each in documents if each["spec"]["key"].startswith("topics/many-")]
