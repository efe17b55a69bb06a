"""The status of a run about a driver that could not report its own end."""

from typing import Any

import pytest
from msgspec import json

from barnabas_operator.planning.maintenance.observed_run import JobEnd, ObservedRun, RunJob, driver_pod
from barnabas_operator.planning.maintenance.run_status import ended, running
from barnabas_operator.resources.kind import ObjectMeta, condition_of
from barnabas_operator.resources.maintenance_run import MaintenanceJob, MaintenanceJobSpec

RUN = MaintenanceJob(metadata=ObjectMeta(name="a"), spec=MaintenanceJobSpec(job="archive"))
NOW = "2026-01-01T00:00:00Z"
LOW = "The node was low on resource: ephemeral-storage."
MORE = "apply a MaintenanceJob with another name and more spec.driver.resources.limits.memory"
ENDS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({}, {"exitCode": 137, "reason": "OOMKilled"}, " (exit 137, OOMKilled)", MORE),
    ({}, {"exitCode": 143, "reason": "Error"}, " (exit 143)", "see its log"),
    ({"reason": "Evicted", "message": LOW}, {"exitCode": 137, "reason": "Error"}, f" (exit 137, Evicted: {LOW})", ""),
]


def test_the_last_commit_of_a_driver_stays_in_the_status_while_the_next_driver_waits() -> None:
    said = '{"phase": "archiving", "lastCommitMs": 1767312000000, "recordsBehind": 7}'
    first = {
        "metadata": {"name": "a-driver-x", "annotations": {"barnabas.dev/progress": said}},
        "status": {"phase": "Running", "containerStatuses": [{"name": "driver", "state": {"running": {}}}]},
    }
    waits = {"metadata": {"name": "a-driver-y"}, "status": {"phase": "Pending"}}
    job = RunJob("uid", "", False, False, 1, NOW, None)
    going_on = running(RUN, "one", ObservedRun(job, (driver_pod(first),)), NOW)
    assert going_on.status is not None
    assert going_on.status.driver_running is True
    waiting = running(going_on, "one", ObservedRun(job, (driver_pod(first), driver_pod(waits))), NOW)
    assert waiting.status is not None
    told = waiting.status.driver_running, waiting.status.last_commit_time, waiting.status.records_behind
    assert told == (False, "2026-01-02T00:00:00Z", 7)
    over = ended(waiting, "one", ObservedRun(job._replace(end=JobEnd(True, "", "", NOW)), ()), NOW)
    assert over.status is not None
    assert over.status.records_behind is None, "a run that has succeeded is not behind"


def seen(meta: dict[str, Any] | None = None, *, at_ms: int | None = None, **status: Any) -> MaintenanceJob:
    """Return the run with its status at NOW, whose driver runs and wrote its progress at `at_ms`."""
    heartbeat = {} if at_ms is None else {"atMs": at_ms}
    said = json.encode({"phase": "archiving", "recordsBehind": 0, **heartbeat}).decode()
    pod = {
        "metadata": {"name": "a-driver-x", "annotations": {"barnabas.dev/progress": said}, **(meta or {})},
        "status": {"phase": "Running", "containerStatuses": [{"name": "driver", "state": {"running": {}}}], **status},
    }
    return running(RUN, "one", ObservedRun(RunJob("uid", "", False, False, 1, NOW, None), (driver_pod(pod),)), NOW)


NOW_MS = 1767225600000


def test_a_driver_without_a_heartbeat_for_two_minutes_does_not_count_as_running() -> None:
    for at_ms, runs in ((NOW_MS, True), (NOW_MS - 119_000, True), (NOW_MS - 121_000, False), (None, True)):
        status = seen(at_ms=at_ms).status
        assert status is not None
        assert (status.driver_running, status.records_behind) == ((True, 0) if runs else (False, None))
    ready = condition_of(seen(at_ms=NOW_MS - 121_000).conditions, "Ready")
    assert ready is not None
    assert ready.message.startswith("driver a-driver-x has not reported for more than 120 s: it hangs, or its node is")


def test_a_driver_whose_pod_kubernetes_takes_away_does_not_count_as_running() -> None:
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    for run in (seen({"deletionTimestamp": NOW}), seen(reason="NodeLost"), seen(conditions=[disrupted])):
        assert run.status is not None
        assert run.status.driver_running is False


def observed(status: dict[str, Any], terminated: dict[str, Any], end: JobEnd | None) -> ObservedRun:
    containers = [{"name": "driver", "state": {"terminated": terminated}}]
    pod = {"metadata": {"name": "a-driver-x"}, "status": {"phase": "Failed", "containerStatuses": containers, **status}}
    return ObservedRun(RunJob("uid", "", False, False, 1, NOW, end), (driver_pod(pod),))


@pytest.mark.parametrize(("status", "terminated", "why", "advice"), ENDS)
def test_the_status_reports_how_kubernetes_ended_a_driver_and_what_to_do(
    status: dict[str, Any], terminated: dict[str, Any], why: str, advice: str
) -> None:
    going_on = running(RUN, "one", observed(status, terminated, None), NOW)
    ready = condition_of(going_on.conditions, "Ready")
    assert ready is not None
    assert ready.message == f"driver a-driver-x ended{why}, so another driver is started"
    over = ended(RUN, "one", observed(status, terminated, JobEnd(False, "BackoffLimitExceeded", "", NOW)), NOW)
    ready = condition_of(over.conditions, "Ready")
    assert ready is not None
    assert ready.message == f"driver a-driver-x ended{why} without a message; {advice or 'see its log'}"
