"""MaintenanceJobs by the operator: a run with executors, a wrong one, and a schedule that fires."""

import json
from typing import Final

import pytest

from barnabas_operator.resources.json_types import Json
from e2e.pods.castle import NAME, Castle
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from harness.stock_client import StockClient

RECORDS: Final = 1000
TOPIC: Final = "kept"
CLAIM: Final = "kept-archives"
SECONDS_MAX: Final = 300.0
RESOURCES: Final = {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}
OPTIONS: Final = {"topic": TOPIC, "archive": "/archive/kept"}
RUN: Final = {
    "job": "archive",
    "options": OPTIONS,
    "driver": RESOURCES,
    "executor": RESOURCES,
    "volumes": [{"name": "archive", "mountPath": "/archive", "claimName": CLAIM}],
}


def apply(castle: Castle, *items: Json) -> None:
    castle.kubectl("apply", "-f-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))


def run_of(name: str, **spec: object) -> Json:
    whole = {"cluster": NAME, **RUN, **spec}
    return {
        "apiVersion": "barnabas.dev/v1alpha1",
        "kind": "MaintenanceJob",
        "metadata": {"name": name},
        "spec": whole,
    }


def status(castle: Castle, name: str) -> Json:
    done = castle.ask("get", "bm", name, "-ojson")
    found: Json = json.loads(done.stdout).get("status", {}) if done.returncode == 0 else {}
    return found


def await_end(castle: Castle, name: str) -> Json:
    return wait_for(
        lambda: status(castle, name), lambda found: found.get("phase") in ("Succeeded", "Failed"), SECONDS_MAX, 1.0
    )


@pytest.fixture(scope="module")
def archives(installed: Castle, cluster: Cluster) -> Castle:
    """A topic with records, and a claim for its archive."""
    cluster.image("barnabas-jobs")  # What the chart names by itself.
    installed.await_ready()
    installed.create_topic(TOPIC, 2)
    StockClient(installed.bootstrap).write(TOPIC, [b"%d" % number for number in range(RECORDS)], 0)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    apply(installed, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec})
    return installed


def test_a_run_with_executors_archives_a_topic_and_tells_of_it(archives: Castle) -> None:
    apply(archives, run_of("archive-kept", executors=2))
    wait_for(
        lambda: archives.items("pod", "barnabas.dev/maintenance-role=executor"), lambda pods: len(pods) == 2, 240.0
    )
    found = await_end(archives, "archive-kept")
    assert found["phase"] == "Succeeded", found
    assert found["result"]["archived_records"] == RECORDS
    assert (found["progress"], found["records"], found["attempts"]) == ("100%", {"done": RECORDS, "total": RECORDS}, 1)
    row = archives.kubectl("get", "bm", "archive-kept", "--no-headers").split()
    assert row[:5] == ["archive-kept", "archive", "Succeeded", "100%", str(RECORDS)]
    apply(archives, run_of("archive-nothing", options={**OPTIONS, "topic": "nowhere"}, backoffLimit=0))
    found = await_end(archives, "archive-nothing")
    (ready,) = found["conditions"]
    assert (found["phase"], found["attempts"]) == ("Failed", 1), ready
    assert "nowhere" in ready["message"]


@pytest.mark.slow
def test_a_schedule_fires_and_its_run_goes_with_it(archives: Castle) -> None:
    entry = {**RUN, "name": "minutely", "schedule": "* * * * *", "job": "verify"}
    archives.patch({"maintenance": [entry]})
    chosen = "barnabas.dev/schedule=minutely"
    runs = wait_for(lambda: archives.kubectl("get", "bm", "-l", chosen, "-oname").split(), seconds_max=SECONDS_MAX)
    archives.patch({"maintenance": [{**entry, "suspend": True}]})
    name = runs[0].rpartition("/")[2]
    assert await_end(archives, name)["phase"] == "Succeeded"
    wait_for(
        lambda: archives.kubectl("get", "job", name, "-ojsonpath={.status.succeeded}"), lambda said: said == "1", 120.0
    )
    archives.patch({"maintenance": None})
    wait_for(lambda: archives.kubectl("get", "bm,cronjobs", "-l", chosen, "-oname"), lambda left: not left, 120.0)
