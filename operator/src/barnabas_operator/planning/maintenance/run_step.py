"""The next step of a run, which is done once, even if the operator dies or an object is lost. Pure.

A run begins in three writes: its Job is created suspended, the MaintenanceJob is marked, the Job is resumed. So a mark
without a Job is a run that has begun and whose Job was lost, and never one that was still to begin.
"""

from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.observed_run import ObservedRun
from barnabas_operator.planning.object_names import application_name, driver_name
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import FINISHED, MaintenanceJob

MARK: Final = "barnabas.dev/run"
"""The annotation that keeps the state of a run if its status is lost: backups have no statuses.

It names the run: a copy under another name is another run.
"""
STARTED: Final = "Started"


class Wait(NamedTuple):
    """The run waits, for the reason `why`."""

    why: Refusal


class MakeJob(NamedTuple):
    """The step that creates the run's Job, suspended."""


class MarkStarted(NamedTuple):
    """The step that marks the MaintenanceJob as begun."""


class ResumeJob(NamedTuple):
    """The step that resumes the suspended Job."""


class Watch(NamedTuple):
    """The step of a run that is under way: only its status is written."""


class End(NamedTuple):
    """The step of a run that is over, with its end in the observation."""


class Recall(NamedTuple):
    """The step of a run that is over, with only its mark left: Succeeded, Failed, or Started if its end is unknown."""

    mark: str


Step = Wait | MakeJob | MarkStarted | ResumeJob | Watch | End | Recall


def mark_of(run: MaintenanceJob) -> str | None:
    """Return the mark of the run, regardless of its status; None if there is none for this name."""
    named, _, mark = run.metadata.annotations.get(MARK, "").partition(" ")
    return mark if named == run.metadata.name else None


def marked(run: MaintenanceJob, mark: str) -> str:
    """Return the annotation's text."""
    return f"{run.metadata.name} {mark}"


def has_begun(run: MaintenanceJob) -> bool:
    """True if the run may have done something."""
    return mark_of(run) is not None or (run.status is not None and run.status.phase == "Running")


def taken(kind: str, name: str) -> Refusal:
    """Return the refusal for an object of another owner that has the name of one that the run needs."""
    return Refusal(RESOURCE_CONFLICT, f"{kind} {name} belongs to something else; allowed: delete it, or another name")


class StartedObject(NamedTuple):
    """The object that starts a run's drivers."""

    kind: str
    name: str


def started_object(run: MaintenanceJob) -> StartedObject:
    """Return the object that starts the drivers, by the run's backend."""
    name = run.metadata.name
    if run.spec.backend == "Kubeflow":
        return StartedObject("SparkApplication", application_name(name))
    return StartedObject("Job", driver_name(name))


def next_step(run: MaintenanceJob, observed: ObservedRun, why_not: Refusal | None) -> Step:
    """Return the step of a run that has not finished. `why_not` is the reason why it cannot begin now, or None."""
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
