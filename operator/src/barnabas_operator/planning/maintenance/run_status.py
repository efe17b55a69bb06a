"""The status of a run: what it waits for, how far it is, how it ended. Pure."""

from typing import Final, Literal

from msgspec.structs import replace

from barnabas_operator.planning.conditions import condition
from barnabas_operator.planning.maintenance.run_facts import DriverPod, JobEnd, Progress, RunFacts
from barnabas_operator.planning.refusal import Refusal
from barnabas_operator.planning.time_text import seconds_between
from barnabas_operator.resources.maintenance_job import (
    FINISHED,
    Count,
    MaintenanceJob,
    MaintenanceJobStatus,
    Phase,
)
from barnabas_operator.resources.object_meta import READY, condition_of, merge_conditions

RUNNING: Final = "Running"
SUCCEEDED: Final = "Succeeded"
JOB_FAILED: Final = "JobFailed"
INVALID_OPTIONS: Final = "InvalidOptions"
FOUND_SOMETHING: Final = "FoundSomething"
RUN_LOST: Final = "RunLost"
DELETING: Final = "Deleting"
REASONS: Final = {2: INVALID_OPTIONS, 3: FOUND_SOMETHING}
"""By exit code of the job; see docs/jobs.md."""
OF_KUBERNETES: Final = frozenset({"DeadlineExceeded"})
"""Why Kubernetes ended a Job, where that tells more than how its last driver ended."""
ANOTHER: Final = "apply a MaintenanceJob of another name to run it again"

Truth = Literal["True", "False", "Unknown"]


def pending(run: MaintenanceJob, cluster: str, why: Refusal, now: str) -> MaintenanceJob:
    """The run with the status of one that has not begun, and why it has not."""
    return _told(run, cluster, "Pending", ("False", why.reason, why.message), now)


def refused(run: MaintenanceJob, cluster: str, why: str, now: str) -> MaintenanceJob:
    """It can never begin: what it declares cannot change."""
    return _told(run, cluster, "Failed", ("False", INVALID_OPTIONS, f"{why}; {ANOTHER}"), now)


def running(run: MaintenanceJob, cluster: str, facts: RunFacts, now: str) -> MaintenanceJob:
    """The run with the status of one that is under way, with its driver's numbers."""
    last = facts.drivers[-1] if facts.drivers else None
    run = _with_numbers(run, facts, now)
    return _told(run, cluster, "Running", ("Unknown", RUNNING, _doing(last)), now)


def ended(run: MaintenanceJob, cluster: str, facts: RunFacts, now: str) -> MaintenanceJob:
    """Its Job has ended; `facts` have it with its end."""
    assert facts.job is not None, "only a Job ends"
    assert facts.job.end is not None, "only a Job that has ended"
    end = facts.job.end
    last = next((each for each in reversed(facts.drivers) if each.exit_code is not None), None)
    run = _with_numbers(run, facts, end.at or now)
    assert run.status is not None, "numbers are in a status"
    status = replace(run.status, completion_time=end.at or now, activity=None, records_per_second=None)
    if end.is_good:
        status = replace(status, progress="100%")
    if last is not None:
        status = replace(status, result=last.termination.result or {}, ledger=last.termination.ledger or status.ledger)
    truth: Truth = "True" if end.is_good else "False"
    phase: Phase = "Succeeded" if end.is_good else "Failed"
    return _told(replace(run, status=status), cluster, phase, (truth, *_how(end, last)), now)


def recalled(run: MaintenanceJob, cluster: str, mark: str, now: str) -> MaintenanceJob:
    """Its Job is gone, and its status does not say how it ended."""
    if mark in FINISHED:
        truth: Truth = "True" if mark == SUCCEEDED else "False"
        phase: Phase = "Succeeded" if mark == SUCCEEDED else "Failed"
        said = f"it ended earlier ({mark}); its Job and its status were lost, and it is not run again"
        return _told(run, cluster, phase, (truth, SUCCEEDED if mark == SUCCEEDED else JOB_FAILED, said), now)
    lost = f"it had begun, and its Job is gone: nobody knows how far it was; {ANOTHER}"
    return _told(run, cluster, "Failed", ("False", RUN_LOST, lost), now)


def without_cluster(run: MaintenanceJob, why: Refusal, now: str) -> MaintenanceJob:
    """Its Cluster is not there: one that has ended is about nothing any more."""
    if run.has_finished:
        return run
    before = run.status or MaintenanceJobStatus()
    return _told(run, before.cluster or "", before.phase or "Pending", ("False", why.reason, why.message), now)


def is_worth_a_write(before: MaintenanceJobStatus | None, after: MaintenanceJobStatus) -> bool:
    """Whether it says something new at once; numbers can wait for their turn."""
    return before is None or _news(before) != _news(after)


def _news(status: MaintenanceJobStatus) -> tuple[object, ...]:
    ready = condition_of(status.conditions, READY)
    why = (ready.status, ready.reason) if ready is not None else ()
    said = ready.message if ready is not None and status.phase != "Running" else ""
    return status.phase, status.attempts, status.observed_generation, why, said


def _told(run: MaintenanceJob, cluster: str, phase: Phase, said: tuple[Truth, str, str], now: str) -> MaintenanceJob:
    before = run.status or MaintenanceJobStatus()
    current = [condition(run, READY, *said, now)]
    status = replace(
        before,
        conditions=merge_conditions(before.conditions, current),
        observed_generation=run.metadata.generation,
        cluster=before.cluster or cluster or None,
        phase=phase,
    )
    return replace(run, status=status)


def _with_numbers(run: MaintenanceJob, facts: RunFacts, until: str) -> MaintenanceJob:
    before, last = run.status or MaintenanceJobStatus(), facts.drivers[-1] if facts.drivers else None
    started = (facts.job.started_at if facts.job is not None else None) or before.start_time or until
    seconds = max(0, seconds_between(started, until))
    status = replace(
        before,
        start_time=started,
        duration_seconds=seconds,
        duration=duration_text(seconds),
        attempts=max(before.attempts or 0, facts.job.attempts if facts.job is not None else 0),
    )
    progress = last.progress if last is not None else None
    return replace(run, status=_with_progress(status, progress) if progress is not None else status)


def _with_progress(status: MaintenanceJobStatus, progress: Progress) -> MaintenanceJobStatus:
    rate = progress.records_per_second
    return replace(
        status,
        activity=progress.phase or None,
        stages=progress.stages,
        records=progress.records,
        records_per_second=round(rate) if rate is not None else None,
        progress=_percent(progress.records) or _percent(progress.stages),
    )


def _percent(count: Count | None) -> str | None:
    return f"{min(100, 100 * count.done // count.total)}%" if count is not None and count.total else None


def _doing(last: DriverPod | None) -> str:
    """Why there is no progress, else what is done."""
    if last is None:
        return "its driver is being made"
    if last.trouble:
        return f"{last.name}: {last.trouble}"
    if last.has_ended:
        again = f"driver {last.name} ended{_code(last)}: it is started again"
        return f"{again}; it said: {last.termination.message}" if last.termination.message else again
    return last.progress.phase if last.progress is not None else f"driver {last.name} starts"


def _code(last: DriverPod) -> str:
    return f" (exit {last.exit_code})" if last.exit_code is not None else ""


def _how(end: JobEnd, last: DriverPod | None) -> tuple[str, str]:
    """Reason and message."""
    said = last.termination.message if last is not None else ""
    if end.is_good:
        return SUCCEEDED, said or "done"
    if end.reason in OF_KUBERNETES or last is None:
        return end.reason if end.reason in OF_KUBERNETES else JOB_FAILED, f"{end.reason}: {end.message}"
    told = said or f"driver {last.name} ended{_code(last)} without a word; see its log"
    return REASONS.get(last.exit_code or 0, JOB_FAILED), told


def duration_text(seconds: int) -> str:
    """As kubectl writes it: 45s, 12m30s, 3h20m."""
    minutes, rest = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return f"{minutes // 60}h{minutes % 60}m"
