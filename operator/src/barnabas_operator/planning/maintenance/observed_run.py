"""The state of a MaintenanceJob in Kubernetes: its Job and its driver pods, read from JSON."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from barnabas_operator.planning.object_names import MAINTENANCE_ROLE_LABEL, application_name, driver_name
from barnabas_operator.resources.foreign_json import foreign_json
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import Count

DRIVER: Final = "driver"
"""The name of the driver's container."""
SPARK_DRIVER: Final = "spark-kubernetes-driver"
"""The name of the driver's container if Kubeflow's Spark operator starts the driver."""
PROGRESS: Final = "barnabas.dev/progress"
"""The annotation in which a driver reports its progress."""
ENDED: Final = ("Succeeded", "Failed")
BY_ITSELF: Final = ("Completed", "Error")
"""The reasons of a container whose process exited or was ended by a signal."""
OUT_OF_MEMORY: Final = "OOMKilled"


class Progress(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress that a driver reports."""

    phase: str = ""
    stages: Count | None = None
    records: Count | None = None
    records_per_second: float | None = None
    last_commit_ms: int | None = None
    records_behind: int | None = None


class TerminationMessage(Struct, frozen=True, kw_only=True):
    """The termination message that a driver wrote when it ended."""

    message: str = ""
    result: dict[str, Any] | None = field(default_factory=dict)
    ledger: str | None = None


class DriverPod(NamedTuple):
    """The driver pod of one attempt. `exit_code` is None until the process of the driver has ended."""

    name: str
    made_at: str
    has_ended: bool
    exit_code: int | None
    termination: TerminationMessage
    progress: Progress | None
    trouble: str
    """The reason why the pod does not run, or "" if it runs or starts normally."""
    end_reason: str = ""
    """The reason why Kubernetes ended the pod, such as OOMKilled or Evicted, or "" if its process exited."""
    is_running: bool = False
    """True if the process of the driver runs."""


class JobEnd(NamedTuple):
    """The end of a Job: success or failure, with the reason and message of Kubernetes."""

    is_good: bool
    reason: str
    message: str
    at: str


class RunJob(NamedTuple):
    """The batch Job or the SparkApplication of a MaintenanceJob.

    `owner` is the uid of the controller in its ownerReferences, or "".
    """

    uid: str
    owner: str
    is_suspended: bool
    is_ending: bool
    attempts: int
    started_at: str | None
    end: JobEnd | None
    starts_more: bool = False
    """True if Kubeflow's operator would start more drivers, even after the `end` that the Barnabas operator decided."""


class ObservedRun(NamedTuple):
    """The observed state of one MaintenanceJob; `drivers` are in order of creation."""

    job: RunJob | None = None
    drivers: tuple[DriverPod, ...] = ()
    live_pods: int = 0
    """The number of drivers and executors that have not ended."""
    unmade: str = ""
    """The reason that Kubernetes reports for creating no driver pod, or ""."""
    executor_trouble: str = ""
    """The name of an executor that does not run, with the reason, or "" if no executor has a problem."""
    unknown: str = ""
    """The reason why the state of the run could not be read, or ""."""

    @property
    def lacks_driver(self) -> bool:
        """True if the Job should have a driver pod, but Kubernetes has created none yet."""
        return self.job is not None and self.job.end is None and not (self.job.is_suspended or self.drivers)


NOTHING_SEEN: Final = ObservedRun()


def run_job(found: Json) -> RunJob:
    """Return the state of a `batch/v1` Job."""
    meta, status = found["metadata"], found.get("status", {})
    counted = (status.get(field, 0) for field in ("failed", "succeeded", "active"))
    return RunJob(
        meta["uid"],
        owner_of(found),
        bool(found.get("spec", {}).get("suspend")),
        "deletionTimestamp" in meta,
        sum(counted),
        status.get("startTime"),
        _end(status.get("conditions", ())),
    )


def owner_of(found: Json) -> str:
    """Return the uid of the object's controller, or "" if the object has none."""
    owners = [each for each in found["metadata"].get("ownerReferences", ()) if each.get("controller")]
    return owners[0]["uid"] if owners else ""


def _end(conditions: Iterable[Json]) -> JobEnd | None:
    for each in conditions:
        if each["type"] in ("Complete", "Failed") and each["status"] == "True":
            why = each.get("reason", ""), each.get("message", "")
            return JobEnd(each["type"] == "Complete", *why, each.get("lastTransitionTime", ""))
    return None


def driver_pod(found: Json) -> DriverPod:
    """Return the state of a driver pod."""
    meta, status = found["metadata"], found.get("status", {})
    container: Json = next(
        (each for each in status.get("containerStatuses", ()) if each["name"] in (DRIVER, SPARK_DRIVER)), {}
    )
    ended = container.get("state", {}).get("terminated")
    return DriverPod(
        meta["name"],
        meta.get("creationTimestamp", ""),
        status.get("phase") in ENDED,
        ended.get("exitCode") if ended is not None else None,
        _termination_message(ended.get("message") or "" if ended is not None else ""),
        _progress((meta.get("annotations") or {}).get(PROGRESS)),
        _trouble(status, container),
        _end_reason(status, ended or {}),
        "running" in container.get("state", {}),
    )


def executor_trouble(pods: Iterable[Json]) -> str:
    """Return the name and problem of the first executor that does not run, or "" if all run or start normally."""
    for pod in pods:
        status = pod.get("status", {})
        container: Json = next(iter(status.get("containerStatuses", ())), {})  # An executor's pod has one container.
        if is_live(pod) and (why := _trouble(status, container)):
            return f"executor {pod['metadata']['name']}: {why}"
    return ""


def is_driver(pod: Json) -> bool:
    """True if the pod has the label of a driver."""
    return bool(pod["metadata"]["labels"].get(MAINTENANCE_ROLE_LABEL) == DRIVER)


def is_of_run(pod: Json, run: str, job_uid: str | None) -> bool:
    """True if a pod is a driver or an executor of the MaintenanceJob `run`, judged by its owner.

    The owner of an executor must be a driver of the run. The owner of a driver must be the run's Job or
    SparkApplication; a driver without an owner is recognized by its name. `job_uid` is None if the Job no longer
    exists; then the owner may be any Job with the name of the run's Job. Labels prove nothing: anybody may set them.
    """
    owners = (each for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller"))
    owner: Json = next(owners, {"kind": "", "name": "", "uid": ""})
    if not is_driver(pod):
        return bool(owner["kind"] == "Pod" and owner["name"].startswith(driver_name(run)))
    if owner["kind"] == "Job":
        return bool(owner["name"] == driver_name(run) and job_uid in (None, owner["uid"]))
    if owner["kind"] == "SparkApplication":
        return bool(owner["name"] == application_name(run))
    return bool(pod["metadata"]["name"] == driver_name(run))  # If Kubeflow's webhook is off, drivers have no owner.


def is_live(pod: Json) -> bool:
    """True if the pod has not ended."""
    return pod.get("status", {}).get("phase") not in ENDED


def _end_reason(status: Json, ended: Json) -> str:
    of_pod = ": ".join(filter(None, (status.get("reason"), status.get("message"))))
    of_container = ended.get("reason", "")
    return of_pod or ("" if of_container in BY_ITSELF else of_container)


def _progress(text: str | None) -> Progress | None:
    return foreign_json(text, Progress) if text is not None else None


def _termination_message(text: str) -> TerminationMessage:
    """Return the termination message of a driver. If the text is not JSON, the message is the last line of the text."""
    last_line = text.strip().splitlines()[-1] if text.strip() else ""
    return foreign_json(text, TerminationMessage) or TerminationMessage(message=last_line)


def _trouble(status: Json, container: Json) -> str:
    """Return why a pod cannot be scheduled or started, for example for lack of its image, or ""."""
    waiting = container.get("state", {}).get("waiting", {})
    if waiting.get("reason", "") not in ("", "ContainerCreating", "PodInitializing"):
        return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    unschedulable = (each for each in status.get("conditions", ()) if each.get("reason") == "Unschedulable")
    unplaced: Json = next(unschedulable, {})
    return str(unplaced.get("message", "")).partition(" preemption:")[0].strip()
