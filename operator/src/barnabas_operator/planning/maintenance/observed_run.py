"""The state of a MaintenanceJob in Kubernetes: its Job or SparkApplication and its pods, read from JSON.

The state of a MaintenanceJob, by which the operator decides what to do with the run. A MaintenanceJob must run only
once, even if the operator restarts or an object is lost. So a run begins in three writes: the operator creates the
Job suspended, adds the annotation `MARK` to the MaintenanceJob, and resumes the Job. If the annotation exists
without a Job, the run may have begun, and its Job was lost.

The order of runs. Two runs never overlap if they run the same job on the same topic, or if they write the same
report. Runs that write different tables of an archive, or compact a table to which another run adds, may overlap.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from barnabas_operator.planning.conditions import (
    INTERNAL_ERROR,
    KUBERNETES_ERROR,
    RESOURCE_CONFLICT,
    Refusal,
    seconds_between,
)
from barnabas_operator.planning.maintenance.run_checks import NO_SPARK_OPERATOR, REPORT, run_problems
from barnabas_operator.planning.object_names import MAINTENANCE_ROLE_LABEL, application_name, driver_name
from barnabas_operator.resources.kind import READY, Json, condition_of, foreign_json
from barnabas_operator.resources.maintenance_run import FINISHED, Count, MaintenanceJob, RunSpec

DRIVER: Final = "driver"
"""The name of the driver's container."""
SPARK_DRIVER: Final = "spark-kubernetes-driver"
"""The name of the driver's container if Kubeflow's Spark operator starts the driver."""
PROGRESS: Final = "barnabas.dev/progress"
"""The annotation in which a driver reports its progress."""
START: Final = "barnabas.dev/start"
"""The annotation of a Job or SparkApplication with the digest `start_of` it."""
ENDED: Final = ("Succeeded", "Failed")
BY_ITSELF: Final = ("Completed", "Error")
"""The reasons of a container whose process exited or was ended by a signal."""
OUT_OF_MEMORY: Final = "OOMKilled"
COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
FINAL_CODES: Final = frozenset({2, 3})
"""The exit codes of jobs after which another attempt would fail in the same way."""


class Progress(Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress that a driver reports."""

    phase: str = ""
    stages: Count | None = None
    records: Count | None = None
    records_per_second: float | None = None
    last_commit_ms: int | None = None
    records_behind: int | None = None
    at_ms: int | None = None
    """The driver's wall-clock time when it wrote the progress; None of drivers without a heartbeat."""


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
    """True if the process of the driver runs, as far as Kubernetes knows: its pod may be on a node that has died."""


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
    start: str = ""
    """A digest of what its drivers start with (`start_of`)."""


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


def start_of(item: Json) -> str:
    """Return a digest of what the drivers of a Job or SparkApplication start with: image, command and pull secrets.

    The command has the address of the brokers, and the path of the credentials if the Cluster is secured. The
    annotation START comes first, because an admission webhook may have changed the image of a stored Job.
    """
    marked = (item["metadata"].get("annotations") or {}).get(START)
    if marked is not None:
        return str(marked)
    spec = item.get("spec", {})
    template = spec.get("template") or spec.get("driver", {}).get("template") or {}
    pod = template.get("spec", {})
    container: Json = next(iter(pod.get("containers", ())), {})  # A driver's pod has one container.
    image, command = container.get("image", spec.get("image", "")), container.get("command", spec.get("arguments", ()))
    given = image, *command, *(each["name"] for each in pod.get("imagePullSecrets", ()))
    return blake2b("\0".join(given).encode(), digest_size=16).hexdigest()


def observed_run(name: str, job: Json | None, labelled: Iterable[Json]) -> ObservedRun:
    """Return the state of the run `name`: its Job, if it exists, and its pods among `labelled`."""
    run = _job(job) if job is not None else None
    pods = [each for each in labelled if _is_of_run(each, name, run.uid if run is not None else None)]
    drivers = [each for each in pods if _is_driver(each)]
    tries = sorted(map(driver_pod, drivers), key=lambda each: (each.made_at, each.name))
    trouble = _executor_trouble(each for each in pods if not _is_driver(each))
    return ObservedRun(run, tuple(tries), sum(map(_is_live, pods)), executor_trouble=trouble)


def with_application(run: MaintenanceJob, pods: ObservedRun, found: Json, now: str) -> ObservedRun:
    """Return the state of a run on Kubeflow: its SparkApplication, and its pods as in `pods`.

    The run has failed if its last driver ended with one of `FINAL_CODES`, or if its deadline has passed: Kubeflow's
    Spark operator retries after any exit code, and has no deadline for all attempts together. The start time is None,
    because Kubeflow reports the start time of the last attempt only.
    """
    meta, status = found["metadata"], found.get("status", {})
    end = _end_of(status)
    job = RunJob(
        meta["uid"],
        _owner_of(found),
        bool(found.get("spec", {}).get("suspend")),
        "deletionTimestamp" in meta,
        status.get("executionAttempts", 0),
        None,
        end or _end_by_exit_code(pods, now) or _end_by_deadline(run, now),
        starts_more=end is None,
        start=start_of(found),
    )
    return pods._replace(job=job, unmade=_unsubmitted(status))


def _job(found: Json) -> RunJob:
    """Return the state of a `batch/v1` Job."""
    meta, status = found["metadata"], found.get("status", {})
    counted = (status.get(field, 0) for field in ("failed", "succeeded", "active"))
    return RunJob(
        meta["uid"],
        _owner_of(found),
        bool(found.get("spec", {}).get("suspend")),
        "deletionTimestamp" in meta,
        sum(counted),
        status.get("startTime"),
        _end(status.get("conditions", ())),
        start=start_of(found),
    )


def _owner_of(found: Json) -> str:
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
        "running" in container.get("state", {}) and not _is_going(meta, status),
    )


def _is_going(meta: Json, status: Json) -> bool:
    """True if Kubernetes takes the pod away; on a dead node such a pod keeps the state `running` for ever."""
    disrupted = any(
        each["type"] == "DisruptionTarget" and each["status"] == "True" for each in status.get("conditions", ())
    )
    return "deletionTimestamp" in meta or status.get("reason") == "NodeLost" or disrupted


def _executor_trouble(pods: Iterable[Json]) -> str:
    """Return the name and problem of the first executor that does not run, or "" if all run or start normally."""
    for pod in pods:
        status = pod.get("status", {})
        container: Json = next(iter(status.get("containerStatuses", ())), {})  # An executor's pod has one container.
        if _is_live(pod) and (why := _trouble(status, container)):
            return f"executor {pod['metadata']['name']}: {why}"
    return ""


def _is_driver(pod: Json) -> bool:
    """True if the pod has the label of a driver."""
    return bool(pod["metadata"]["labels"].get(MAINTENANCE_ROLE_LABEL) == DRIVER)


def _is_of_run(pod: Json, run: str, job_uid: str | None) -> bool:
    """True if a pod is a driver or an executor of the MaintenanceJob `run`, judged by its owner.

    The owner of an executor must be a driver of the run. The owner of a driver must be the run's Job or
    SparkApplication; a driver without an owner is recognized by its name. `job_uid` is None if the Job no longer
    exists; then the owner may be any Job with the name of the run's Job. Labels prove nothing: anybody may set them.
    """
    owners = (each for each in pod["metadata"].get("ownerReferences", ()) if each.get("controller"))
    owner: Json = next(owners, {"kind": "", "name": "", "uid": ""})
    if not _is_driver(pod):
        return bool(owner["kind"] == "Pod" and owner["name"].startswith(driver_name(run)))
    if owner["kind"] == "Job":
        return bool(owner["name"] == driver_name(run) and job_uid in (None, owner["uid"]))
    if owner["kind"] == "SparkApplication":
        return bool(owner["name"] == application_name(run))
    return bool(pod["metadata"]["name"] == driver_name(run))  # If Kubeflow's webhook is off, drivers have no owner.


def _is_live(pod: Json) -> bool:
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


def _end_of(status: Json) -> JobEnd | None:
    state = status.get("applicationState", {})
    if state.get("state") not in (COMPLETED, FAILED):
        return None
    why, at = state.get("errorMessage", ""), status.get("terminationTime") or ""
    return JobEnd(state["state"] == COMPLETED, "SparkApplicationFailed", why, at)


def _unsubmitted(status: Json) -> str:
    """Return why Kubeflow's operator has started no driver, or else the state of the SparkApplication."""
    state = status.get("applicationState", {})
    if not state.get("state"):
        return (
            "Kubeflow's Spark operator has not picked up the SparkApplication; check that the "
            "Spark operator runs and watches this namespace"
        )
    return ": ".join(filter(None, (f"the SparkApplication is {state['state']}", state.get("errorMessage", "").strip())))


def _end_by_exit_code(observed: ObservedRun, now: str) -> JobEnd | None:
    codes = [each.exit_code for each in observed.drivers]
    return JobEnd(False, "ExitCode", f"exit {codes[-1]}", now) if codes and codes[-1] in FINAL_CODES else None


def _end_by_deadline(run: MaintenanceJob, now: str) -> JobEnd | None:
    deadline_s, status = run.spec.active_deadline_seconds, run.status
    if deadline_s is None or status is None or status.start_time is None:
        return None
    is_over = seconds_between(status.start_time, now) >= deadline_s
    message = f"the run was active longer than the deadline of {deadline_s} seconds"
    return JobEnd(False, "DeadlineExceeded", message, now) if is_over else None


MARK: Final = "barnabas.dev/run"
"""The annotation of a MaintenanceJob with the state of its run.

The operator reads the annotation if the status is lost, as in a restore from a backup. The annotation contains the
name of the MaintenanceJob, so that a copy with another name counts as a new run.
"""
STARTED: Final = "Started"
BEGINS_AGAIN: Final = "BeginsAgain"
"""The mark of a run whose Job is made again, with another address, other credentials or another image."""
_WORK_IS_DONE: Final = FINAL_CODES | {0}
"""The exit codes after which the Job starts no other driver."""


class RunState(Enum):
    """The state of a run. The status of a run before `ENDING` is not final."""

    INVALID = auto()
    """The spec is invalid, and the run has not begun."""
    UNKNOWN = auto()
    """The objects of the run could not be read."""
    TAKEN = auto()
    """The name of the run's Job belongs to an object of another owner."""
    NEW = auto()
    """The run has no Job, and has not begun."""
    CREATED = auto()
    """The Job is suspended."""
    RUNNING = auto()
    REPLACED = auto()
    """The Job is made again, and its pods have not ended yet."""
    ENDED = auto()
    """The Job has ended."""
    LOST = auto()
    """The run has begun, and its Job is gone; or its status, but not its annotation, was lost after its end."""
    ENDING = auto()
    """The MaintenanceJob is being deleted."""
    LINGERING = auto()
    """The status is final, but pods still run, or may be started."""
    OVER = auto()
    """The status is final, and no pod runs."""


class Run(NamedTuple):
    """A MaintenanceJob with the observed state of its objects, and the state that follows from both."""

    declared: MaintenanceJob
    observed: ObservedRun
    state: RunState

    @property
    def may_use_its_topics(self) -> bool:
        """True if other runs on the same topic may have to wait for this run."""
        if self.state is RunState.ENDING:
            return has_begun(self.declared)
        return self.state not in (RunState.INVALID, RunState.OVER)


def run_of(declared: MaintenanceJob, observed: ObservedRun) -> Run:
    """Return the run with its state."""
    return Run(declared, observed, _state(declared, observed))


def _state(run: MaintenanceJob, observed: ObservedRun) -> RunState:
    job = observed.job
    if run.metadata.deletion_timestamp is not None:
        return RunState.ENDING
    if run.has_finished:
        may_do_something = observed.live_pods or observed.unknown or (job is not None and job.starts_more)
        return RunState.LINGERING if may_do_something else RunState.OVER
    if not has_begun(run) and any(run_problems(run.spec)):
        return RunState.INVALID
    if observed.unknown:
        return RunState.UNKNOWN
    return _without_job(run, observed) if job is None else _with_job(run, job)


def _with_job(run: MaintenanceJob, job: RunJob) -> RunState:
    if job.owner != run.metadata.uid:
        return RunState.TAKEN
    if job.end is not None:
        return RunState.ENDED
    if mark_of(run) in FINISHED:
        return RunState.LOST
    if job.is_ending and mark_of(run) == BEGINS_AGAIN:
        return RunState.REPLACED
    return RunState.CREATED if job.is_suspended else RunState.RUNNING


def _without_job(run: MaintenanceJob, observed: ObservedRun) -> RunState:
    if mark_of(run) == BEGINS_AGAIN:
        return RunState.REPLACED if observed.live_pods else RunState.NEW
    return RunState.LOST if has_begun(run) else RunState.NEW


def may_begin_again(run: Run) -> bool:
    """True if the run loses no work when its Job is made again.

    That is so between two attempts, while a driver cannot start, and always in a continuous run, which goes on where
    its table ends.
    """
    observed = run.observed
    last = observed.drivers[-1] if observed.drivers else None
    if last is None:
        return not observed.live_pods
    if last.has_ended:
        return not observed.live_pods and last.exit_code not in _WORK_IS_DONE
    return run.declared.spec.is_continuous or bool(last.trouble and not last.is_running)


def mark_of(run: MaintenanceJob) -> str | None:
    """Return the state in the annotation `MARK`, or None if it is missing or names another MaintenanceJob."""
    named, _, mark = run.metadata.annotations.get(MARK, "").partition(" ")
    return mark if named == run.metadata.name else None


def marked(run: MaintenanceJob, mark: str) -> str:
    """Return the value of the annotation `MARK`: the name of the MaintenanceJob and the state of its run.

    The argument `mark` is the state.
    """
    return f"{run.metadata.name} {mark}"


def has_begun(run: MaintenanceJob) -> bool:
    """True if the run may have begun its work."""
    return mark_of(run) is not None or (run.status is not None and run.status.phase == "Running")


def taken(kind: str, name: str) -> Refusal:
    """Return the Refusal of a run that needs the object `name`, which already exists and has another owner."""
    return Refusal(
        RESOURCE_CONFLICT,
        f"{kind} {name} already exists and has another owner; delete the object, or rename the MaintenanceJob",
    )


def started_object(run: MaintenanceJob) -> tuple[str, str]:
    """Return kind and name of the object that starts the drivers, which depends on `spec.backend`."""
    name = run.metadata.name
    if run.spec.backend == "Kubeflow":
        return "SparkApplication", application_name(name)
    return "Job", driver_name(name)


OTHER_RUN: Final = "OtherRunUnderWay"
TOPIC: Final = "topic"
ABOUT: Final = {"topic": TOPIC, "topics": TOPIC, "into": TOPIC, REPORT: REPORT}
"""The options that name what a run works on (its subjects), with the kind of each subject."""
OWN_REASONS: Final = frozenset({NO_SPARK_OPERATOR, RESOURCE_CONFLICT, KUBERNETES_ERROR, INTERNAL_ERROR})
"""The reasons for which a run cannot begin that have nothing to do with other runs.

A run with one of these reasons may never begin, so other runs do not wait for it.
"""


class _Subject(NamedTuple):
    """A topic or a report that a run works on. Runs with an equal subject do not overlap.

    `job` is empty for a report, so that different jobs that write it have an equal subject.
    """

    job: str
    thing: str
    name: str


def waiting_turns(unfinished: Iterable[MaintenanceJob]) -> Mapping[str, Refusal]:
    """Return, by name, the refusal of each run that must wait for another run.

    A run waits for each earlier run with an equal `_Subject`. Runs that have begun come first, then the other runs by
    age. A run whose condition Ready has one of `OWN_REASONS` comes last, so that no other run waits for it.
    """
    runs = sorted(unfinished, key=_turn)
    first: dict[_Subject, int] = {}
    """The index in `runs` of the first run that works on each topic or report."""
    waiting: dict[str, Refusal] = {}
    for turn, run in enumerate(runs):
        subjects = list(_subjects(run.spec))
        shared = [each for each in subjects if each in first]
        if shared and not has_begun(run):
            subject = min(shared, key=lambda each: first[each])
            waiting[run.metadata.name] = _other_run(subject, runs[first[subject]])
        for each in subjects:
            first.setdefault(each, turn)
    return waiting


def _other_run(subject: _Subject, other: MaintenanceJob) -> Refusal:
    about = f"the {subject.thing} {subject.name}"
    what = f"the job {other.spec.job} for {about} is under way in the MaintenanceJob {other.metadata.name}"
    return Refusal(OTHER_RUN, f"{what}; this MaintenanceJob begins after the other MaintenanceJob has ended")


def _turn(run: MaintenanceJob) -> tuple[bool, bool, bool, str, str]:
    made = run.metadata.creation_timestamp  # RFC 3339 times in UTC can be sorted as strings.
    return not has_begun(run), _could_not_begin(run), made is None, made or "", run.metadata.name


def _could_not_begin(run: MaintenanceJob) -> bool:
    if has_begun(run) or run.status is None:
        return False
    ready = condition_of(run.status.conditions, READY)
    return ready is not None and ready.reason in OWN_REASONS


def _subjects(run: RunSpec) -> Iterator[_Subject]:
    """Yield the subjects of a run: the topics and the report that the run works on."""
    for option, thing in ABOUT.items():
        text = run.options.get(option, "")
        names = text.split(",") if thing == TOPIC else [text.rstrip("/")]
        for name in sorted(set(names) - {""}):
            yield _Subject("" if thing == REPORT else run.job, thing, name)
