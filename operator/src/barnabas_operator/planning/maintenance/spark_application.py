"""The state of a run's SparkApplication, and its end by exit code or deadline.

Kubeflow's Spark operator retries after any exit code, and has no deadline for all attempts together. So the Barnabas
operator decides about exit codes and deadlines, and deletes the SparkApplication of a run that has ended.
"""

from typing import Final

from barnabas_operator.planning.maintenance.observed_run import JobEnd, ObservedRun, RunJob, owner_of
from barnabas_operator.planning.time_text import seconds_between
from barnabas_operator.resources.json_types import Json
from barnabas_operator.resources.maintenance_job import MaintenanceJob

COMPLETED: Final = "COMPLETED"
FAILED: Final = "FAILED"
FINAL_CODES: Final = frozenset({2, 3})
"""The exit codes of jobs after which another attempt would fail in the same way."""


def with_application(run: MaintenanceJob, pods: ObservedRun, found: Json, now: str) -> ObservedRun:
    """Return the state of a run on Kubeflow: its SparkApplication, and its pods as in `pods`.

    The run has failed if its last driver ended with one of `FINAL_CODES`, or if its deadline has passed. The start
    time is None, because Kubeflow reports the start time of the last attempt only.
    """
    meta, status = found["metadata"], found.get("status", {})
    end = _end_of(status)
    job = RunJob(
        meta["uid"],
        owner_of(found),
        bool(found.get("spec", {}).get("suspend")),
        "deletionTimestamp" in meta,
        status.get("executionAttempts", 0),
        None,
        end or _end_by_exit_code(pods, now) or _end_by_deadline(run, now),
        starts_more=end is None,
    )
    return pods._replace(job=job, unmade=_unsubmitted(status))


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
    said = f"the run was active longer than the deadline of {deadline_s} seconds"
    return JobEnd(False, "DeadlineExceeded", said, now) if is_over else None
