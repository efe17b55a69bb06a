"""The state of a MaintenanceJob, by which the operator decides what to do with the run.

A MaintenanceJob must run only once, even if the operator restarts or an object is lost. So a run begins in three
writes: the operator creates the Job suspended, adds the annotation `MARK` to the MaintenanceJob, and resumes the Job.
If the annotation exists without a Job, the run may have begun, and its Job was lost.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.observed_run import FINAL_CODES, ObservedRun, RunJob
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.planning.object_names import application_name, driver_name
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import FINISHED, MaintenanceJob

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
    its ledger ends.
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
