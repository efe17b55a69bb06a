"""What comes next of a run: it is done once, whoever dies and whatever is lost. Pure.

A run begins in three writes: its Job is made suspended, the MaintenanceJob is marked, the Job is let go. So a mark
without a Job is a run that has begun and whose Job was lost, and never one that was still to begin.
"""

from typing import Final, NamedTuple

from barnabas_operator.planning.maintenance.observed_run import ObservedRun
from barnabas_operator.planning.object_names import application_name, driver_name
from barnabas_operator.planning.refusal import RESOURCE_CONFLICT, Refusal
from barnabas_operator.resources.maintenance_job import FINISHED, MaintenanceJob

MARK: Final = "barnabas.dev/run"
"""The annotation that says how far a run was, where its status is lost: backups have no statuses.

It names the run: a copy under another name is another run.
"""
STARTED: Final = "Started"


class Wait(NamedTuple):
    """The run waits, for the reason `why`."""

    why: Refusal


class MakeJob(NamedTuple):
    """Its Job is made, suspended."""


class MarkStarted(NamedTuple):
    """The MaintenanceJob is marked: it has begun."""


class ResumeJob(NamedTuple):
    """The Job is let go."""


class Watch(NamedTuple):
    """The run is under way: only its status is written."""


class End(NamedTuple):
    """It is over; what there is tells how."""


class Recall(NamedTuple):
    """It is over, and only its mark tells how: Succeeded, Failed, or Started where nobody knows."""

    mark: str


Step = Wait | MakeJob | MarkStarted | ResumeJob | Watch | End | Recall


def mark_of(run: MaintenanceJob) -> str | None:
    """How far it was, whatever its status says."""
    named, _, mark = run.metadata.annotations.get(MARK, "").partition(" ")
    return mark if named == run.metadata.name else None


def marked(run: MaintenanceJob, mark: str) -> str:
    """The annotation's text."""
    return f"{run.metadata.name} {mark}"


def has_begun(run: MaintenanceJob) -> bool:
    """Whether it may do something, or have done so."""
    return mark_of(run) is not None or (run.status is not None and run.status.phase == "Running")


def taken(kind: str, name: str) -> Refusal:
    """Of an object that the run needs: an earlier run's is deleted by Kubernetes, somebody else's by its owner."""
    return Refusal(RESOURCE_CONFLICT, f"{kind} {name} belongs to something else; allowed: delete it, or another name")


class StartedObject(NamedTuple):
    """What starts a run's drivers."""

    kind: str
    name: str


def started_object(run: MaintenanceJob) -> StartedObject:
    """By its backend."""
    name = run.metadata.name
    if run.spec.backend == "Kubeflow":
        return StartedObject("SparkApplication", application_name(name))
    return StartedObject("Job", driver_name(name))


def next_step(run: MaintenanceJob, observed: ObservedRun, why_not: Refusal | None) -> Step:
    """Of a run that has not finished. `why_not` is why it cannot begin now, if it cannot."""
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
