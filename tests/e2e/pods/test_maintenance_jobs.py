"""MaintenanceJobs of the operator: a run with executors; in the soak every job, a failing run and a schedule."""

import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import TopicPartition

from barnabas_operator.resources.kind import Json
from e2e.pods.castle import NAME, Castle
from e2e.pods.providers import Cluster
from harness.deadline import wait_for
from harness.soak import size
from harness.stock_client import StockClient
from local_kubernetes.kubectl import PATIENTLY

TOPIC: Final = "kept"
HELD: Final = {
    partition: [b"%d-%d" % (partition, n) for n in range(count)] for partition, count in ((0, 700), (1, 300))
}
"""The values of the topic, by partition."""
RECORDS: Final = sum(map(len, HELD.values()))
OTHER: Final = "kept-apart"
OTHER_PARTITIONS: Final = 40
"""With so many partitions a report is larger than the termination message that Kubernetes keeps."""
CUT: Final = "2 items; see the log of the pod"
"""The text that the status then has in place of the topics."""
OTHER_RECORDS: Final = 2000
AGAIN: Final = "kept-again"
GROUP: Final = "readers"
COMMITS: Final = ((0, 100), (0, 400), (1, 300))
"""Partitions and committed offsets."""
CLAIM: Final = "kept-archives"
EXECUTORS: Final = size(1, 2)
"""Each executor is a JVM, which needs a dozen seconds of a processor until it works."""
SECONDS_MAX: Final = 700.0
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options that suit a JVM that lives for a short time."""
SECURITY: Final = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
RESOURCES: Final = {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}
ARCHIVE: Final = "/archive/tables"
REPORTS: Final = "/archive/reports"
OPTIONS: Final = {"topic": TOPIC, "archive": ARCHIVE}
VOLUME: Final = {"name": "archive", "mountPath": "/archive", "claimName": CLAIM}
RUN: Final = {
    "job": "archive",
    "options": OPTIONS,
    "driver": RESOURCES,
    "executor": RESOURCES,
    "volumes": [VOLUME],
    "sparkConf": {
        "spark.driver.defaultJavaOptions": SHORT_LIVED,
        "spark.executor.defaultJavaOptions": SHORT_LIVED,
        "spark.sql.shuffle.partitions": "2",
    },
}
RUNS: Final[Mapping[str, Json]] = {
    "restore-kept": {"job": "restore", "options": {**OPTIONS, "into": AGAIN, "create": "true"}},
    "skew-of-both": {"job": "skew", "options": {"topics": f"{TOPIC},{OTHER}", "report": f"{REPORTS}/skew"}},
    "lag-of-readers": {
        "job": "lag-history",
        "options": {"groups": GROUP, "max_records": "100", "report": f"{REPORTS}/lag"},
    },
    "retention-of-both": {
        "job": "retention-audit",
        "options": {"topics": f"{TOPIC},{OTHER}", "retention_ms": "1", "report": f"{REPORTS}/retention"},
    },
}
"""The declared runs of jobs other than archive, verify and audit."""
AUDIT: Final = "audit-kept"
READER: Final = f"""
import json, pathlib
from pyarrow import parquet
told = {{}}
for path in sorted(pathlib.Path("{REPORTS}").glob("*/*")):
    if path.suffix == ".json":
        found = json.loads(path.read_text())
    elif path.suffix == ".parquet":
        found = parquet.read_table(path).to_pylist()
    else:
        found = path.stat().st_size
    told[f"{{path.parent.name}}/{{path.name}}"] = found
print(json.dumps(told, default=str))
"""
"""Prints the content of each file of the reports, and of a page only its size."""


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


def claims_of_brokers(castle: Castle) -> dict[str, int]:
    """Return the claims with the number of each one's broker. Another test may have added disks."""
    names = castle.kubectl("get", "pvc", "-ojsonpath={.items[*].metadata.name}").split()
    found = (re.fullmatch(rf"volume-\d+-{NAME}-broker-(\d+)", name) for name in names)
    return {each[0]: int(each[1]) for each in found if each is not None}


def audit_run(castle: Castle) -> Json:
    """Return a run that audits all disks of the brokers."""
    claims = claims_of_brokers(castle)
    mounts = [
        {"name": claim, "mountPath": f"/brokers/{claim}", "claimName": claim, "readOnly": True} for claim in claims
    ]
    log_dirs = ",".join(f"{broker}:/brokers/{claim}/log" for claim, broker in claims.items())
    options = {"log_dirs": log_dirs, "report": f"{REPORTS}/audit", "topics": TOPIC, "deep": "true"}
    return {"job": "audit", "options": options, "volumes": [VOLUME, *mounts]}


def run_to_its_end(castle: Castle, name: str, declared: Json) -> Json:
    """Run it with one executor; return its status at the end."""
    apply(castle, run_of(name, executors=1, **declared))
    return await_end(castle, name)


def fill(castle: Castle) -> None:
    """Write the topic that is archived."""
    castle.create_topic(TOPIC, len(HELD))
    client = StockClient(castle.bootstrap)
    for partition, values in HELD.items():
        client.write(TOPIC, values, partition)


def fill_other(castle: Castle) -> None:
    """Write another topic, and commit offsets of a group."""
    castle.create_topic(OTHER, OTHER_PARTITIONS)
    client = StockClient(castle.bootstrap)
    client.write(OTHER, [b"a record"] * OTHER_RECORDS, OTHER_PARTITIONS - 1)
    for partition, offset in COMMITS:
        client.commit(GROUP, TopicPartition(TOPIC, partition, offset))


@pytest.fixture(scope="module")
def archives(installed: Castle, cluster: Cluster) -> Iterator[Castle]:
    """A topic with records, and a claim for archives and reports."""
    cluster.image("barnabas-jobs")  # The chart uses this image by default.
    installed.await_ready()
    fill(installed)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    apply(installed, {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}, "spec": spec})
    yield installed
    installed.kubectl("delete", "bm", "--all", PATIENTLY)  # Their pods hold the brokers' claims.


@pytest.fixture(scope="module")
def archived(archives: Castle) -> Castle:
    """The same with the topic in its archive."""
    apply(archives, run_of("archive-kept", executors=EXECUTORS))
    wait_for(
        lambda: archives.items("pod", "barnabas.dev/maintenance-role=executor"),
        lambda pods: len(pods) == EXECUTORS,
        SECONDS_MAX,
    )
    await_end(archives, "archive-kept")
    return archives


@pytest.mark.soak
def test_a_run_with_executors_archives_a_topic_and_reports_its_result(archived: Castle) -> None:
    found = status(archived, "archive-kept")
    assert found["phase"] == "Succeeded", found
    assert (found["result"]["archived_records"], found["ledger"]) == (RECORDS, f"barnabas.{TOPIC}")
    assert (found["progress"], found["records"]) == ("100%", {"done": RECORDS, "total": RECORDS})
    assert found["attempts"] >= 1, "a driver may be started again on a busy node"
    row = archived.kubectl("get", "bm", "archive-kept", "--no-headers").split()
    assert row[:5] == ["archive-kept", "archive", "Succeeded", "100%", str(RECORDS)]


@pytest.mark.soak(only=True)
def test_a_run_for_a_missing_topic_fails_and_names_the_topic(archived: Castle) -> None:
    apply(archived, run_of("archive-nothing", options={**OPTIONS, "topic": "nowhere"}, backoffLimit=0))
    found = await_end(archived, "archive-nothing")
    (ready,) = found["conditions"]
    assert (found["phase"], found["attempts"]) == ("Failed", 1), ready
    assert "nowhere" in ready["message"]


@pytest.mark.soak(only=True)
def test_the_other_jobs_work_in_executors_and_have_right_results_and_files(archived: Castle, cluster: Cluster) -> None:
    if len({pod["spec"]["nodeName"] for pod in archived.pod_items()}) > 1:
        pytest.skip("the brokers are on several nodes, and an audit mounts the claims of all")
    fill_other(archived)
    runs = {AUDIT: audit_run(archived), **RUNS}
    with ThreadPoolExecutor(2) as two:
        statuses = two.map(partial(run_to_its_end, archived), runs.keys(), runs.values())
        ended = dict(zip(runs, statuses, strict=True))
    reasons = {name: (found["phase"], found["conditions"][0]["reason"]) for name, found in ended.items()}
    missed = {"lag-of-readers": ("Failed", "FoundSomething")}
    told = "\n".join(f"{name}: {found['conditions'][0]['message']}" for name, found in ended.items())
    assert reasons == dict.fromkeys(runs, ("Succeeded", "Succeeded")) | missed, told
    assert [found["attempts"] for found in ended.values()] == [1] * len(runs), "findings are not retried"
    assert [name for name in runs if not executors_that_ran(archived, name)] == []
    results = {name: found["result"] for name, found in ended.items()}
    files = reports(archived, cluster.image("barnabas-jobs"))

    _check_restored(archived, results["restore-kept"])
    _check_audited(results[AUDIT], files)
    _check_skew(results["skew-of-both"], files)
    _check_lag(results["lag-of-readers"], files)
    _check_retention(results["retention-of-both"], files)


def executors_that_ran(castle: Castle, name: str) -> set[str]:
    """Return the executors of a run whose container was started, according to Events."""
    started = json.loads(castle.kubectl("get", "events", "--field-selector=reason=Started", "-ojson"))["items"]
    pods = {each["involvedObject"]["name"] for each in started}
    return {each for each in pods if each.startswith(f"{name}-") and "-exec-" in each}


def reports(castle: Castle, image: str) -> dict[str, Any]:
    """Return what READER prints in a pod that mounts the claim."""
    volume = {"name": "archive", "persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}}
    container = {
        "name": "reader",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", READER],
        "securityContext": SECURITY,
        "volumeMounts": [{"name": "archive", "mountPath": "/archive", "readOnly": True}],
    }
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    apply(castle, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "report-reader"}, "spec": spec})
    castle.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/report-reader", PATIENTLY)
    found: dict[str, Any] = json.loads(castle.kubectl("logs", "report-reader"))
    castle.kubectl("delete", "pod", "report-reader", "--wait=false")
    return found


def _check_restored(castle: Castle, result: Json) -> None:
    assert result["written"] == {str(partition): len(values) for partition, values in HELD.items()}
    client = StockClient(castle.bootstrap)
    assert {partition: client.read(AGAIN, partition) for partition in HELD} == HELD


def _check_audited(result: Json, files: Mapping[str, Any]) -> None:
    assert (result["found"], result["findings"]) == ({}, [])
    assert (result["brokers"], result["partitions"], result["replicas"]) == ([0, 1, 2], 2, 6)
    assert result["bytes"] > 3 * sum(map(len, HELD[0] + HELD[1])), "all three replicas must be read"
    assert files["audit/findings.parquet"] == []
    assert files["audit/audit.json"] == result
    assert files["audit/audit.html"] > 0


def _check_skew(result: Json, files: Mapping[str, Any]) -> None:
    """Check the report: its partitions do not fit into the pod's termination message."""
    assert result["records"] == RECORDS + OTHER_RECORDS
    assert result["topics"] == CUT
    planned = files["skew/plan.json"]["partitions"]
    assert len(planned) == result["planned_partitions"]
    assert json.loads(result["plan"])["partitions"] == planned[: result["plan_partitions"]]
    kept, other = files["skew/skew.json"]["topics"]
    assert kept["largest_over_mean"]["records"] == 1.4
    assert (other["largest_over_mean"]["records"], other["hot_keys"][0]["records"]) == (OTHER_PARTITIONS, OTHER_RECORDS)
    held = {(row["topic"], row["partition"]): row["records"] for row in files["skew/partitions.parquet"]}
    assert held == {
        **{(TOPIC, partition): len(values) for partition, values in HELD.items()},
        **{(OTHER, partition): 0 for partition in range(OTHER_PARTITIONS - 1)},
        (OTHER, OTHER_PARTITIONS - 1): OTHER_RECORDS,
    }
    assert {row["broker"] for row in files["skew/log_dirs.parquet"]} == {0, 1, 2}


def _check_lag(result: Json, files: Mapping[str, Any]) -> None:
    """Check a lag of 300 records; it was above the objective at two commits and is now."""
    (group,) = result["groups"]
    numbers = ("commits", "lag_max", "lag_now", "missed", "kept")
    assert [group[name] for name in numbers] == [len(COMMITS), 600, 300, 3, False]
    rows = files["lag/history.parquet"]
    assert [(row["partition"], row["committed"], row["lag"]) for row in rows] == [
        (partition, offset, len(HELD[partition]) - offset) for partition, offset in COMMITS
    ]
    assert sum(row["commits"] for row in files["lag/rollups.parquet"] if row["period"] == "day") == len(COMMITS)


def _check_retention(result: Json, files: Mapping[str, Any]) -> None:
    """Check that another retention would delete all records: all are older than a millisecond."""
    assert (result["report"], result["topics"]) == (f"{REPORTS}/retention", CUT)
    told = {each["topic"]: each["partitions"] for each in files["retention/retention.json"]["topics"]}
    assert [part["would_go_records"] for part in told[TOPIC]] == [len(values) for values in HELD.values()]
    assert sum(part["would_go_records"] for part in told[OTHER]) == OTHER_RECORDS
    assert len(files["retention/partitions.parquet"]) == len(HELD) + OTHER_PARTITIONS
    assert not any(part["findings"] for parts in told.values() for part in parts)


@pytest.mark.soak(only=True)
def test_a_schedule_starts_a_run_that_is_deleted_with_the_schedule(archived: Castle) -> None:
    entry = {**RUN, "name": "minutely", "schedule": "* * * * *", "job": "verify", "executors": 1}
    archived.patch({"maintenance": [entry]})
    chosen = "barnabas.dev/schedule=minutely"
    runs = wait_for(lambda: archived.kubectl("get", "bm", "-l", chosen, "-oname").split(), seconds_max=SECONDS_MAX)
    archived.patch({"maintenance": [{**entry, "suspend": True}]})
    name = runs[0].rpartition("/")[2]
    found = await_end(archived, name)
    compared = sum(each["topic_records"] for each in found["result"]["partitions"])
    assert (found["phase"], compared) == ("Succeeded", RECORDS), found
    assert executors_that_ran(archived, name)
    wait_for(
        lambda: archived.kubectl("get", "job", name, "-ojsonpath={.status.succeeded}"),
        lambda said: said == "1",
        SECONDS_MAX,
    )
    archived.patch({"maintenance": None})
    wait_for(lambda: archived.kubectl("get", "bm,cronjobs", "-l", chosen, "-oname"), lambda left: not left, SECONDS_MAX)
