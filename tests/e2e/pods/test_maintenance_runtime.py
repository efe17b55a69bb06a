"""Maintenance jobs as driver and executor pods, and what happens to their pods and brokers while they run."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from e2e.pods.castle import NAME, Castle
from e2e.pods.job_pods import MOUNT, JobPods, job, prepare
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from harness.stock_client import StockClient

RECORDS = 2000
PARTITIONS = 4
BOOTSTRAP = f"{NAME}-bootstrap:9092"
ENDS_SECONDS_MAX = 300.0


@pytest.fixture
def start(cluster: Cluster, castle: Castle) -> Callable[..., JobPods]:
    """Starts a job on a topic, its archive below the volume of all; its pods."""
    prepare(castle)

    def start(name: str, kind: str, topic: str, executors: int, **options: str) -> JobPods:
        given = {"bootstrap": BOOTSTRAP, "topic": topic, "archive": f"{MOUNT}/{topic}", **options}
        words = [kind, *(word for key, value in given.items() for word in ("--option", f"{key}={value}"))]
        items = job(castle, name, cluster.image("barnabas-jobs"), words, executors)
        castle.kubectl("apply", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return JobPods(castle, name)

    return start


def fill(castle: Castle, topic: str) -> None:
    """A topic with RECORDS records."""
    castle.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        values = [b"%d" % number for number in range(partition, RECORDS, PARTITIONS)]
        StockClient(castle.bootstrap).write(topic, values, partition)


def ended(run: JobPods) -> dict[str, Any]:
    return wait_for(run.ending, seconds_max=ENDS_SECONDS_MAX, pause_s=0.5)


def test_a_topic_is_archived_by_executors_and_verified_by_a_driver_alone(
    castle: Castle, start: Callable[..., JobPods]
) -> None:
    fill(castle, "archived")
    run = start("archive-once", "archive", "archived", executors=2)
    executors = wait_for(run.executors, lambda found: len(found) == 2, ENDS_SECONDS_MAX, pause_s=0.2)
    driver = run.drivers()[-1]["metadata"]
    for pod in executors:
        assert [each["uid"] for each in pod["metadata"]["ownerReferences"]] == [driver["uid"]]
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert pod["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    told = ended(run)
    assert (told["code"], told["exit"], told["ledger"]) == (0, 0, f"{MOUNT}/archived/ledger")
    assert told["result"]["records"] == told["result"]["archived_records"] == RECORDS
    progress = run.progress()
    assert progress["records"] == {"done": RECORDS, "total": RECORDS}
    assert progress["stages"]["done"] == progress["stages"]["total"]
    wait_for(run.executors, lambda found: not found, seconds_max=60)
    found = ended(start("verify-alone", "verify", "archived", executors=0))
    assert (found["code"], found["message"]) == (0, "done")


@pytest.mark.slow
def test_a_run_outlives_its_executor_its_driver_and_a_restart_of_all_brokers(
    cluster: Cluster, castle: Castle, start: Callable[..., JobPods]
) -> None:
    fill(castle, "attacked")
    run = start("archive-attacked", "archive", "attacked", executors=1, commit_records="50")
    done = partial(commits, castle, run)
    wait_for(done, lambda count: count >= 2, ENDS_SECONDS_MAX, pause_s=0.2)
    first = run.drivers()[-1]["metadata"]["name"]

    (executor,) = run.executors()
    castle.kubectl("delete", "pod", executor["metadata"]["name"], "--grace-period=0", "--force")
    before = castle.pods()
    castle.patch({"config": {"group.initial.rebalance.delay.ms": 7}})
    castle.await_new_pods(before)
    assert not run.ending(), "the driver of before goes on"
    since = done()
    wait_for(done, lambda count: count > since, ENDS_SECONDS_MAX, pause_s=0.2)

    cluster.crash(castle.namespace, first)
    wait_for(run.drivers, lambda pods: len(pods) == 2, ENDS_SECONDS_MAX, pause_s=0.5)
    killed = run.ending(run.drivers()[0])
    assert killed["code"] == 137
    told = ended(run)
    assert (told["code"], told["result"]["archived_records"]) == (0, RECORDS)
    assert 0 < told["result"]["records"] < RECORDS, "what the first driver had committed was not archived again"
    wait_for(run.executors, lambda pods: all(_is_over(pod) for pod in pods), seconds_max=60)
    assert ended(start("verify-attacked", "verify", "attacked", executors=0))["code"] == 0


def commits(castle: Castle, run: JobPods) -> int:
    """Records that the driver says are archived."""
    return int(run.progress()["records"]["done"])


def _is_over(pod: Any) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
