"""The status of a MaintenanceJob: what it waits for, its progress, and its end; and the Events about it."""

from collections.abc import Iterator
from typing import Final, Literal

from msgspec.structs import replace

from barnabas_operator.planning.conditions import Refusal, condition, seconds_between, time_text
from barnabas_operator.planning.maintenance.observed_run import (
    BEGINS_AGAIN,
    OUT_OF_MEMORY,
    DriverPod,
    JobEnd,
    ObservedRun,
    Progress,
)
from barnabas_operator.planning.object_names import EventText
from barnabas_operator.resources.kind import READY, Json, condition_of, merge_conditions
from barnabas_operator.resources.maintenance_run import FINISHED, Count, MaintenanceJob, MaintenanceJobStatus, Phase

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
JOB_FAILED: Final = "JobFailed"
INVALID_OPTIONS: Final = "InvalidOptions"
FOUND_SOMETHING: Final = "FoundSomething"
TRIED_AGAIN: Final = "TriedAgain"
RUN_LOST: Final = "RunLost"
DELETING: Final = "Deleting"
CHANGED: Final = "the address of the brokers, the credentials or the image has changed, so the driver begins again"
"""The message of a run whose Job is made again."""
REASONS: Final = {2: INVALID_OPTIONS, 3: FOUND_SOMETHING}
"""The reasons of the condition `Ready`, by the job's exit code; docs/reference/jobs.md explains the codes."""
OF_KUBERNETES: Final = frozenset({"DeadlineExceeded"})
"""The reasons of failed Jobs that the status reports instead of the exit code and message of the last driver pod."""
SILENT_S: Final = 120
"""The seconds after which a driver without a heartbeat, which it sends every 30 s, does not count as running."""
ANOTHER: Final = "to run the job again, apply a MaintenanceJob with another name"
MORE_MEMORY: Final = "apply a MaintenanceJob with another name and more spec.driver.resources.limits.memory"

Truth = Literal["True", "False", "Unknown"]


def pending(run: MaintenanceJob, cluster: str, why: Refusal, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with a status that says why it has not begun."""
    return _with_status(run, cluster, "Pending", ("False", why.reason, why.message), now)


def refused(run: MaintenanceJob, cluster: str, why: str, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with the status Failed, because its spec is invalid and cannot change."""
    return _with_end(_with_status(run, cluster, "Failed", ("False", INVALID_OPTIONS, f"{why}; {ANOTHER}"), now), now)


def running(run: MaintenanceJob, cluster: str, observed: ObservedRun, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with the status Running, with the progress that its driver reports."""
    run = _with_numbers(run, observed, now)
    return _with_status(run, cluster, "Running", ("Unknown", RUNNING, _doing(observed, now)), now)


def beginning_again(run: MaintenanceJob, cluster: str, observed: ObservedRun, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with a status that says why its driver is started again."""
    run = _with_numbers(run, observed, now)
    return _with_status(run, cluster, "Running", ("Unknown", BEGINS_AGAIN, CHANGED), now)


def ended(run: MaintenanceJob, cluster: str, observed: ObservedRun, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with its final status; its Job has ended and must be in `observed`."""
    assert observed.job is not None, "a run that has ended must have a Job"
    assert observed.job.end is not None, "the Job has no end, so the run cannot have ended"
    end = observed.job.end
    last = next((each for each in reversed(observed.drivers) if each.exit_code is not None), None)
    run = _with_numbers(run, observed, end.at or now)
    assert run.status is not None, "_with_numbers must return a run with a status"
    status = replace(
        run.status, completion_time=end.at or now, activity=None, records_per_second=None, driver_running=None
    )
    if end.is_good:
        status = replace(status, progress="100%", records_behind=None)
    if last is not None:
        status = replace(status, result=last.termination.result or {}, ledger=last.termination.ledger or status.ledger)
    truth: Truth = "True" if end.is_good else "False"
    phase: Phase = "Succeeded" if end.is_good else "Failed"
    return _with_status(replace(run, status=status), cluster, phase, (truth, *_how(end, last)), now)


def recalled(run: MaintenanceJob, cluster: str, mark: str, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with a new status, because its former status or its Job was lost.

    `mark` is the state of the run in the annotation of the MaintenanceJob.
    """
    if mark in FINISHED:
        truth: Truth = "True" if mark == SUCCEEDED else "False"
        phase: Phase = "Succeeded" if mark == SUCCEEDED else "Failed"
        message = f"the job ended earlier ({mark}), and its status was lost; the job is not run again"
        return _with_status(run, cluster, phase, (truth, SUCCEEDED if mark == SUCCEEDED else JOB_FAILED, message), now)
    lost = f"the run had begun, but its Kubernetes Job was deleted, so the progress is unknown; {ANOTHER}"
    return _with_end(_with_status(run, cluster, "Failed", ("False", RUN_LOST, lost), now), now)


def ended_at(run: MaintenanceJob) -> str | None:
    """Return the completion time of the run, or the last transition time of `Ready` if no completion time is set.

    The result is None if the status has neither time.
    """
    if run.status is None:
        return None
    ready = condition_of(run.status.conditions, READY)
    return run.status.completion_time or (ready.last_transition_time if ready is not None else None)


def without_cluster(run: MaintenanceJob, why: Refusal, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with a status that says why no Cluster can run it.

    If the MaintenanceJob has finished, return it unchanged.
    """
    if run.has_finished:
        return run
    before = run.status or MaintenanceJobStatus()
    return _with_status(run, before.cluster or "", before.phase or "Pending", ("False", why.reason, why.message), now)


def run_events(run: MaintenanceJob, before: Json) -> Iterator[EventText]:
    """Yield an Event if another attempt of the run has begun, and an Event if the run has succeeded.

    `before` is the earlier status as JSON, with which the new status is compared.
    """
    status = run.status or MaintenanceJobStatus()
    ready = condition_of(status.conditions, READY)
    message = ready.message if ready is not None else ""
    if (status.attempts or 0) > max(1, before.get("attempts", 0)):
        yield "Warning", TRIED_AGAIN, f"attempt {status.attempts} of {run.spec.backoff_limit + 1}: {message}"
    if status.phase == SUCCEEDED != before.get("phase"):
        yield "Normal", SUCCEEDED, f"{message} ({status.duration or 'unknown duration'})"


def is_worth_a_write(before: MaintenanceJobStatus, after: MaintenanceJobStatus) -> bool:
    """True if a new status must be written at once. If only numbers have changed, the status may be written later."""
    return _news(before) != _news(after)


def _news(status: MaintenanceJobStatus) -> tuple[object, ...]:
    ready = condition_of(status.conditions, READY)
    why = (ready.status, ready.reason) if ready is not None else ()
    message = ready.message if ready is not None and status.phase != "Running" else ""
    return status.phase, status.attempts, status.observed_generation, why, message


def _with_status(
    run: MaintenanceJob, cluster: str, phase: Phase, ready: tuple[Truth, str, str], now: str
) -> MaintenanceJob:
    before = run.status or MaintenanceJobStatus()
    current = [condition(run, READY, *ready, now)]
    status = replace(
        before,
        conditions=merge_conditions(before.conditions, current),
        observed_generation=run.metadata.generation,
        cluster=before.cluster or cluster or None,
        phase=phase,
    )
    return replace(run, status=status)


def _with_end(run: MaintenanceJob, now: str) -> MaintenanceJob:
    """Return the MaintenanceJob with a completion time: the time that its status already has, or else `now`."""
    assert run.status is not None, "a run must have a status before it gets a completion time"
    return replace(run, status=replace(run.status, completion_time=run.status.completion_time or now))


def _with_numbers(run: MaintenanceJob, observed: ObservedRun, until: str) -> MaintenanceJob:
    before, last = run.status or MaintenanceJobStatus(), observed.drivers[-1] if observed.drivers else None
    started = (observed.job.started_at if observed.job is not None else None) or before.start_time or until
    seconds = max(0, seconds_between(started, until))
    status = replace(
        before,
        start_time=started,
        duration_seconds=seconds,
        duration=duration_text(seconds),
        attempts=max(before.attempts or 0, observed.job.attempts if observed.job is not None else 0),
        driver_running=last is not None and last.is_running,
    )
    progress = last.progress if last is not None else None
    if progress is not None:
        status = _with_progress(status, progress)
    if last is not None and last.is_running and _is_silent(last, until):
        status = replace(status, driver_running=False, records_behind=None, records_per_second=None)
    return replace(run, status=status)


def _is_silent(driver: DriverPod, now: str) -> bool:
    """True if the driver has sent no heartbeat for SILENT_S: it hangs, or its node is dead or cut off."""
    at_ms = driver.progress.at_ms if driver.progress is not None else None
    return at_ms is not None and seconds_between(time_text(at_ms), now) > SILENT_S


def _with_progress(status: MaintenanceJobStatus, progress: Progress) -> MaintenanceJobStatus:
    rate = progress.records_per_second
    return replace(
        status,
        activity=progress.phase or None,
        stages=progress.stages,
        records=progress.records,
        records_per_second=round(rate) if rate is not None else None,
        progress=_percent(progress.records) or _percent(progress.stages),
        last_commit_time=_time_text(progress.last_commit_ms) or status.last_commit_time,
        records_behind=progress.records_behind if progress.records_behind is not None else status.records_behind,
    )


def _time_text(at_ms: int | None) -> str | None:
    return time_text(at_ms) if at_ms is not None else None


def _percent(count: Count | None) -> str | None:
    return f"{min(100, 100 * count.done // count.total)}%" if count is not None and count.total else None


def _doing(observed: ObservedRun, now: str) -> str:
    """Return a text with the reason for a lack of progress, or else with the current phase."""
    if not observed.drivers:
        return ": ".join(filter(None, ("the driver is being created", observed.unmade)))
    last = observed.drivers[-1]
    if last.trouble:
        return f"{last.name}: {last.trouble}"
    if last.has_ended:
        again = f"driver {last.name} ended{_code(last)}, so another driver is started"
        return f"{again}; the last message was: {last.termination.message}" if last.termination.message else again
    if _is_silent(last, now):
        return (
            f"driver {last.name} has not reported for more than {SILENT_S} s: it hangs, or its node is dead or cut off."
            " No second driver starts beside it; if the node is gone for good, delete the Node, or the pod with --force"
        )
    doing = last.progress.phase if last.progress is not None else f"driver {last.name} starts"
    return "; ".join(filter(None, (doing, observed.executor_trouble)))


def _code(last: DriverPod) -> str:
    code = f"exit {last.exit_code}" if last.exit_code is not None else ""
    details = ", ".join(filter(None, (code, last.end_reason)))
    return f" ({details})" if details else ""


def _how(end: JobEnd, last: DriverPod | None) -> tuple[str, str]:
    """Return the reason and message of the condition `Ready` after the end of a Job."""
    text = last.termination.message if last is not None else ""
    if end.is_good:
        return SUCCEEDED, text or "done"
    if end.reason in OF_KUBERNETES or last is None:
        return end.reason if end.reason in OF_KUBERNETES else JOB_FAILED, f"{end.reason}: {end.message}"
    advice = MORE_MEMORY if last.end_reason == OUT_OF_MEMORY else "see its log"
    message = text or f"driver {last.name} ended{_code(last)} without a message; {advice}"
    return REASONS.get(last.exit_code or 0, JOB_FAILED), message


def duration_text(seconds: int) -> str:
    """Return a duration in the form of kubectl, such as 45s, 12m30s or 3h20m."""
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"
