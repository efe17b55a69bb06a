"""A maintenance job as driver and executor pods that are killed, on brokers that restart, while it runs."""

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
COMMIT = 100
BOOTSTRAP = f"{NAME}-bootstrap:9092"
ENDS_SECONDS_MAX = 300.0
KILLED = 137


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


@pytest.mark.soak(only=True)
def test_a_run_outlives_its_executor_its_driver_and_a_restart_of_all_brokers(
    cluster: Cluster, castle: Castle, start: Callable[..., JobPods]
) -> None:
    fill(castle, "attacked")
    run = start("archive-attacked", "archive", "attacked", executors=1, commit_records=str(COMMIT))
    done = partial(records_done, run)
    wait_for(done, lambda count: count > 0, ENDS_SECONDS_MAX, pause_s=0.2)
    driver = run.drivers()[-1]["metadata"]
    (executor,) = run.executors()
    assert [each["uid"] for each in executor["metadata"]["ownerReferences"]] == [driver["uid"]]
    assert executor["spec"]["automountServiceAccountToken"] is False
    assert executor["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True

    castle.kubectl("delete", "pod", executor["metadata"]["name"], "--grace-period=0", "--force")
    before = castle.pods()
    castle.patch({"config": {"group.initial.rebalance.delay.ms": 7}})
    castle.await_new_pods(before)
    assert not run.ending(), "the driver of before goes on"
    # What is written of a later commit tells that an earlier one is in the ledger.
    wait_for(done, lambda count: count >= 3 * COMMIT, ENDS_SECONDS_MAX, pause_s=0.2)

    cluster.crash(castle.namespace, driver["name"])
    wait_for(run.drivers, lambda pods: len(pods) == 2, ENDS_SECONDS_MAX, pause_s=0.5)
    assert run.ending(run.drivers()[0])["code"] == KILLED
    told = ended(run)
    assert (told["code"], told["exit"], told["ledger"]) == (0, 0, f"{MOUNT}/attacked/ledger")
    assert told["result"]["archived_records"] == RECORDS
    assert 0 < told["result"]["records"] < RECORDS, "what the first driver had committed was not archived again"
    assert run.progress()["records"] == dict.fromkeys(("done", "total"), told["result"]["records"])
    wait_for(run.executors, lambda pods: all(map(_is_over, pods)), seconds_max=60)
    verified = ended(start("verify-attacked", "verify", "attacked", executors=0))
    assert (verified["code"], verified["message"]) == (0, "done")


def records_done(run: JobPods) -> int:
    """As the driver says."""
    return int(run.progress()["records"]["done"])


def _is_over(pod: dict[str, Any]) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
