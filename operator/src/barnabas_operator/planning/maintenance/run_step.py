"""The next step of a MaintenanceJob.

A MaintenanceJob must run only once, even if the operator restarts or an object is lost. So a run begins in three
writes: the operator creates the Job suspended, adds the annotation `MARK` to the MaintenanceJob, and resumes the Job.
If the annotation exists without a Job, the run may have begun, and its Job was lost.
"""

from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.observed_run import ObservedRun
from barnabas_operator.planning.object_names import application_name, driver_name
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import FINISHED, MaintenanceJob

MARK: Final = "barnabas.dev/run"
"""The annotation of a MaintenanceJob with the state of its run.

The operator reads the annotation if the status is lost, as in a restore from a backup. The annotation contains the
name of the MaintenanceJob, so that a copy with another name counts as a new run.
"""
STARTED: Final = "Started"


class Wait(NamedTuple):
    """The step that changes nothing, because the run has to wait; `why` is the reason."""

    why: Refusal


class MakeJob(NamedTuple):
    """The step that creates the run's Job with `suspend: true`."""


class MarkStarted(NamedTuple):
    """The step that writes the annotation `MARK`, which says that the run has begun."""


class ResumeJob(NamedTuple):
    """The step that resumes the suspended Job."""


class Watch(NamedTuple):
    """The step for a run in progress, which only writes the status of the MaintenanceJob."""


class End(NamedTuple):
    """The step for a run whose Job has ended, which writes the final status of the MaintenanceJob."""


class Recall(NamedTuple):
    """The step of a run whose state is known only from its annotation `MARK`, because its Job was deleted.

    `mark` is Succeeded, Failed, or Started if it is unknown how the run has ended.
    """

    mark: str


Step = Wait | MakeJob | MarkStarted | ResumeJob | Watch | End | Recall


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


class StartedObject(NamedTuple):
    """The kind and name of the object that starts the drivers of a run."""

    kind: str
    name: str


def started_object(run: MaintenanceJob) -> StartedObject:
    """Return the object that starts the drivers, which depends on `spec.backend`."""
    name = run.metadata.name
    if run.spec.backend == "Kubeflow":
        return StartedObject("SparkApplication", application_name(name))
    return StartedObject("Job", driver_name(name))


def next_step(run: MaintenanceJob, observed: ObservedRun, why_not: Refusal | None) -> Step:
    """Return the next step of a run that has not finished; `why_not` says why the run may not begin, None if it may."""
    job, mark = observed.job, mark_of(run)
    if job is not None and job.owner != run.metadata.uid:
        return Wait(taken(*started_object(run)))
    if job is None:
        if has_begun(run):
            return Recall(mark or STARTED)
        return Wait(why_not) if why_not is not None else MakeJob()
    if mark in FINISHED and job.end is None:
        return Recall(mark or "")
    if job.end is not None:
        return End()
    if not job.is_suspended:
        return Watch() if mark is not None else MarkStarted()
    if why_not is not None:
        return Wait(why_not)
    return ResumeJob() if mark is not None else MarkStarted()
