"""The whole stack behind the dashboards, real and under load: brokers, operator, lag exporter, Prometheus."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_operator.planning.maintenance.observed_run import PROGRESS
from barnabas_operator.planning.object_names import SCHEDULE_LABEL, driver_name, maintenance_name, run_labels
from barnabas_operator.resources.kind import API_VERSION
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB
from e2e.world import World, world_of_one
from harness.deadline import wait_for
from local_kubernetes.control_plane import ControlPlane
from monitoring.cluster_under_load import PARTITIONS, TRAFFIC, load, three_brokers
from monitoring.prometheus_server import Job, Prometheus, prometheus
from monitoring.promtool import RULES
from monitoring.scraped import CLUSTER, NAMESPACE, brokers_job, exporter_job, lag_exporter


class Stack(NamedTuple):
    """The running programs, and the values that a user may choose."""

    prometheus: Prometheus
    chosen: Mapping[str, str]


ARCHIVE: Final = {"name": "archive", "mountPath": "/archive", "claimName": "archives"}
RUN: Final = {
    "job": "archive",
    "options": {"topic": "flights", "archive": "/archive/flights"},
    "volumes": [ARCHIVE],
}
NIGHTLY: Final = {"name": "nightly", "schedule": "0 3 * * *", "maxAgeSeconds": 86_400, **RUN}
ENDED_AT: Final = "2026-01-01T00:00:00Z"
OBJECTIVE: Final = {"maxRecords": 1000, "maxSeconds": 60, "for": "1s"}


@contextmanager
def whole_stack(plane: ControlPlane, folder: Path) -> Iterator[Stack]:
    """Run all of it."""
    namespace = f"dash-{os.getpid()}"
    with ExitStack() as running:
        cluster = running.enter_context(three_brokers(folder))
        world = running.enter_context(world_of_one(plane, namespace, cluster.brokers[0], folder))
        world.apply_cluster(CLUSTER, brokers={"replicas": 3}, maintenance=[NIGHTLY])
        operator = world.operator()
        running.callback(operator.close)
        for topic in TRAFFIC:
            world.apply(topic, partitions=PARTITIONS, replicas=3)
        world.await_ready(*TRAFFIC)
        running.enter_context(load(cluster))
        exporter = running.enter_context(lag_exporter(folder, cluster.bootstrap))
        _declare_groups(world)
        _declare_runs(world)
        of_operator = Job("operator", [(f"127.0.0.1:{operator.port}", {"namespace": "barnabas"})])
        jobs = [brokers_job(cluster), exporter_job(exporter), of_operator]
        found = running.enter_context(prometheus(folder, jobs, RULES))
        chosen = {
            "job": "archive|verify",
            "cluster": CLUSTER,
            "broker": "0|1|2",
            "topic": "|".join(TRAFFIC),
            "group": "slow|gone|quick|workers",
        }
        yield Stack(found, {**chosen, "namespace": f"{NAMESPACE}|{namespace}"})


def _declare_groups(world: World) -> None:
    """Declare a group that misses its objective, with a waiting reset and a scaled target, and one that keeps it."""
    pod = {"metadata": {"labels": {"app": "slow"}}, "spec": {"containers": [{"name": "slow", "image": "slow"}]}}
    deployment = {"replicas": 1, "selector": {"matchLabels": {"app": "slow"}}, "template": pod}
    scaling = {"target": {"name": "slow"}, "lagThreshold": 1000, "max": PARTITIONS}
    reset = {"id": "once", "to": {"latest": {}}}
    slow = {"lagObjective": OBJECTIVE, "scaling": scaling, "offsets": {"reset": reset}}
    for api, kind, name, spec in (
        ("apps/v1", "Deployment", "slow", deployment),
        (API_VERSION, "ConsumerGroup", "slow", slow),
        (API_VERSION, "ConsumerGroup", "quick", {"lagObjective": OBJECTIVE}),
    ):
        meta = {"name": name, "namespace": world.namespace}
        world.plane.requests.apply({"apiVersion": api, "kind": kind, "metadata": meta, "spec": spec})


def _declare_runs(world: World) -> None:
    """Declare a run of the schedule that has succeeded and one under way, with the reports of drivers and Jobs."""
    verify = {**RUN, "job": "verify"}
    for name, spec, labels in (("done", RUN, {SCHEDULE_LABEL: NIGHTLY["name"]}), ("goes-on", verify, {})):
        meta = {"name": name, "namespace": world.namespace, "labels": labels}
        whole = {"cluster": CLUSTER, **spec}
        item = {"apiVersion": API_VERSION, "kind": MAINTENANCE_JOB.name, "metadata": meta, "spec": whole}
        world.plane.requests.apply(item)
        job = wait_for(partial(_job, world, name))
        world.plane.requests.create(_driver(world, name, job))
    ended = {"status": "True", "lastProbeTime": ENDED_AT, "lastTransitionTime": ENDED_AT}
    conditions = [{"type": kind, **ended} for kind in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": ENDED_AT, "completionTime": ENDED_AT}
    told = {"conditions": conditions, "succeeded": 1, **times}
    world.plane.requests.merge_status("Job", world.namespace, driver_name("done"), told)


def _job(world: World, name: str) -> dict[str, Any] | None:
    return world.plane.requests.get("Job", world.namespace, driver_name(name))


def _driver(world: World, name: str, job: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the pod of a driver that is half done."""
    assert job is not None, "a driver belongs to a Job"
    about = {"name": job["metadata"]["name"], "uid": job["metadata"]["uid"], "controller": True}
    owner = {"apiVersion": "batch/v1", "kind": "Job", **about}
    progress = {"phase": "reading", "records": {"done": 50, "total": 100}, "recordsPerSecond": 10}
    meta = {
        "name": f"{driver_name(name)}-x",
        "namespace": world.namespace,
        "labels": dict(run_labels(CLUSTER, name, "driver")),
        "annotations": {PROGRESS: json.dumps(progress)},
        "ownerReferences": [owner],
    }
    account = {"serviceAccountName": maintenance_name(CLUSTER), "automountServiceAccountToken": False}
    spec = {"containers": [{"name": "driver", "image": "x"}], **account}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
