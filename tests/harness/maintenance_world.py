"""The worker for MaintenanceJobs over an API server in a dict; tests play Kubernetes, which runs the Jobs."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_operator.planning.object_names import MAINTENANCE_JOB_LABEL, driver_name, run_labels
from barnabas_operator.reconcile.maintenance.run_poller import RunPoller
from barnabas_operator.reconcile.reconcile_parts import PollWorker
from barnabas_operator.reconcile.worker_environment import Bodies, OperatorSettings
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.kind import JsonObject
from barnabas_operator.resources.schema_check import resource_of
from harness.kube_memory import KubeMemory, no_server
from harness.manual_loop_clock import ManualLoopClock
from harness.worker_world import looking, resource

KIND = "MaintenanceJob"
CLUSTER = resource_of(Cluster, resource("Cluster", "one"))
SETTINGS = OperatorSettings("broker:dev", batch_s=0.0, busy_s=0.0, jobs_image="jobs:dev")
ARCHIVE = {"topic": "flights", "archive": "/archive/flights"}
VOLUMES = [{"name": "archive", "mountPath": "/archive", "claimName": "archives"}]


class MaintenanceWorld:
    """One worker with its clock, API server and Jobs."""

    def __init__(self, api: KubeMemory) -> None:
        self.api, self.clock = api, ManualLoopClock()
        self.cluster, self.settings = CLUSTER, SETTINGS
        self.worker = self._new_worker()

    def _new_worker(self) -> PollWorker:
        environment = looking(self.api, self.settings, self.clock)
        return PollWorker(environment, RunPoller(environment))

    def restart(self) -> None:
        """Start another operator, which knows only what the API server has."""
        self.worker = self._new_worker()

    def bodies(self) -> Bodies:
        return self.api.by_name(KIND)

    def apply(self, name: str, *, made: str = "2026-01-01T00:00:00Z", **spec: Any) -> None:
        body = resource(
            KIND, name, **{"cluster": "one", "job": "archive", "options": ARCHIVE, "volumes": VOLUMES, **spec}
        )
        self.api.put({**body, "metadata": {**body["metadata"], "creationTimestamp": made, "uid": f"uid-{name}"}})

    async def poll(self, why_not: str = "") -> bool:
        if why_not:
            self.worker.rest(self.bodies(), why_not)
        else:
            self.worker.begin(self.cluster, self.bodies())
        return await self.worker.poll()

    def job(self, name: str) -> JsonObject | None:
        return self.api.found("Job", driver_name(name))

    def status(self, name: str) -> JsonObject:
        found: JsonObject = (self.api.found(KIND, name) or {}).get("status", {})
        return found

    def said(self, name: str) -> tuple[str, str, str]:
        """Return phase, reason and message."""
        status = self.status(name)
        (ready,) = (each for each in status["conditions"] if each["type"] == "Ready")
        return status["phase"], ready["reason"], ready.get("message", "")

    def driver_runs(self, name: str, **progress: Any) -> None:
        """Play Kubernetes: start the driver, which reports this progress."""
        told = {"barnabas.dev/progress": json.dumps(progress)} if progress else {}
        self._pod(name, {"phase": "Running"}, told)
        self._job_status(name, {"active": 1, "startTime": "2026-01-01T00:00:00Z"})

    def driver_ends(self, name: str, exit_code: int, **said: Any) -> None:
        """Play Kubernetes: end the driver with this exit code, and judge the Job."""
        ended = {"terminated": {"exitCode": exit_code, "message": json.dumps({"exit": exit_code, **said})}}
        status = {"phase": "Failed" if exit_code else "Succeeded"}
        self._pod(name, {**status, "containerStatuses": [{"name": "driver", "state": ended}]}, {})
        kind = "Failed" if exit_code else "Complete"
        told = {"type": kind, "status": "True", "reason": "Because", "lastTransitionTime": "2026-01-01T00:01:40Z"}
        counted = {"failed" if exit_code else "succeeded": 1, "startTime": "2026-01-01T00:00:00Z"}
        self._job_status(name, {**counted, "conditions": [told]})

    def attempt_fails(self, name: str, exit_code: int = 1) -> None:
        """Play Kubernetes: end the driver with this exit code; the Job will start another one."""
        ended = {"terminated": {"exitCode": exit_code}}
        self._pod(name, {"phase": "Failed", "containerStatuses": [{"name": "driver", "state": ended}]}, {})

    def driver_is_lost(self, name: str) -> None:
        """Delete the Job, as somebody might."""
        del self.api.objects[f"/apis/batch/v1/namespaces/air/jobs/{driver_name(name)}"]

    def status_is_lost(self, name: str) -> None:
        """Remove the status, as a restore from a backup does."""
        body = self.api.found(KIND, name) or {}
        self.api.put({field: value for field, value in body.items() if field != "status"})

    def executor_runs(self, name: str) -> None:
        """Add an executor's pod that runs."""
        self.executor_is(name, {"phase": "Running"})

    def executor_is(self, name: str, status: JsonObject) -> None:
        """Give the executor's pod this status."""
        owner = {"kind": "Pod", "name": f"{driver_name(name)}-x1", "uid": "driver", "controller": True}
        labels = dict(run_labels("one", name, "executor"))
        meta = {"name": f"{name}-exec-1", "labels": labels, "ownerReferences": [owner]}
        self.api.put({"kind": "Pod", "metadata": meta, "spec": {}, "status": status})

    def delete(self, name: str) -> None:
        """Delete the MaintenanceJob, as somebody would; finalizers hold it."""
        body = self.api.found(KIND, name) or {}
        self.api.put({**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}})

    async def is_deleted_after(self, name: str, seconds: int) -> bool:
        """True if the worker deletes the run after exactly so many seconds, and not one before."""
        self.clock.pass_time(seconds - 1)
        await self.poll()
        was_there = self.api.found(KIND, name) is not None
        self.clock.pass_time(1)
        await self.poll()
        return was_there and self.api.found(KIND, name) is None

    def pods_go(self, name: str) -> None:
        for pod in self.api.of_kind("Pod"):
            if pod["metadata"]["labels"][MAINTENANCE_JOB_LABEL] == name:
                del self.api.objects[f"/api/v1/namespaces/air/pods/{pod['metadata']['name']}"]

    def _pod(self, name: str, status: JsonObject, annotations: dict[str, str]) -> None:
        job = driver_name(name)
        owner = {"kind": "Job", "name": job, "uid": (self.job(name) or {})["metadata"]["uid"], "controller": True}
        labels = dict(run_labels("one", name, "driver"))
        meta = {"name": f"{job}-x1", "labels": labels, "ownerReferences": [owner]}
        pod = {"kind": "Pod", "metadata": {**meta, "annotations": annotations}, "spec": {}, "status": status}
        self.api.put(pod)

    def _job_status(self, name: str, status: JsonObject) -> None:
        self.api.put({**(self.job(name) or {}), "status": status})


@asynccontextmanager
async def maintenance_world() -> AsyncIterator[MaintenanceWorld]:
    """Make a worker for MaintenanceJobs, over none yet."""
    async with no_server() as connection:
        yield MaintenanceWorld(KubeMemory(connection))


@pytest.fixture
async def runs() -> AsyncIterator[MaintenanceWorld]:
    """A worker for MaintenanceJobs."""
    async with maintenance_world() as found:
        yield found
