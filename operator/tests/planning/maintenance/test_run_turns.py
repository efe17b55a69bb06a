"""The turns of runs: started runs come first, then older ones; the turns of thousands are found quickly."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from barnabas_operator.planning.maintenance.observed_run import ABOUT, MARK, waiting_turns
from barnabas_operator.resources.maintenance_run import MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from harness.maintenance_world import KIND
from harness.worker_world import resource

RUNS = 300


def run_of(name: str, *, job: str = "archive", annotations: Any = (), why: str = "", **options: str) -> MaintenanceJob:
    """Return a run; `why` is the reason of its condition Ready."""
    body = resource(KIND, name, cluster="one", job=job, options=options)
    meta = {**body["metadata"], "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": dict(annotations)}
    ready = {"type": "Ready", "status": "False", "reason": why, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"phase": "Pending", "conditions": [ready]}} if why else {}
    return resource_of(MaintenanceJob, {**body, "metadata": meta, **status})


def test_a_run_waits_for_the_first_run_of_its_job_about_the_same_topic() -> None:
    first = run_of("a", topic="flights", archive="/archive/1")
    second = run_of("b", topic="orders", archive="/archive/1")
    both = run_of("c", topic="flights", archive="/archive/2")
    other_job = run_of("d", job="verify", topic="flights", archive="/archive/1")
    waiting = waiting_turns([both, other_job, second, first])
    assert {name: why.message for name, why in waiting.items()} == {
        "c": (
            "the job archive for the topic flights is under way in the MaintenanceJob a; this "
            "MaintenanceJob begins after the other MaintenanceJob has ended"
        )
    }


def test_a_table_is_compacted_and_restored_while_another_run_archives_into_it() -> None:
    archive = run_of("a", topic="flights", archive="/archive", annotations={MARK: "a Started"})
    compact = run_of("b", job="compact", topic="flights", archive="/archive")
    restore = run_of("c", job="restore", topic="flights", archive="/archive", into="other")
    assert not waiting_turns([archive, compact, restore])


def test_a_started_run_comes_before_an_older_one() -> None:
    begun = run_of("z", topics="orders,flights", annotations={MARK: "z Started"})
    waiting = waiting_turns([run_of("a", topics="flights,orders"), begun])
    assert {name: why.message.split(" is ")[0] for name, why in waiting.items()} == {
        "a": "the job archive for the topic flights"
    }


@pytest.mark.parametrize("why", ["SparkOperatorNotFound", "ResourceConflict", "KubernetesError", "InternalError"])
def test_a_run_that_could_not_start_in_its_turn_holds_up_no_other(why: str) -> None:
    stuck = run_of("a", topics="flights", why=why)
    assert set(waiting_turns([stuck, run_of("b", topics="flights")])) == {"a"}
    assert not waiting_turns([stuck])
    begun = run_of("a", topics="flights", why=why, annotations={MARK: "a Started"})
    assert set(waiting_turns([begun, run_of("b", topics="flights")])) == {"b"}


@pytest.mark.parametrize("why", ["OtherRunUnderWay", "ClusterNotReady"])
def test_a_run_that_waited_for_something_else_keeps_its_turn(why: str) -> None:
    assert set(waiting_turns([run_of("a", topics="x", why=why), run_of("b", topics="x")])) == {"b"}


def test_later_runs_wait_for_a_run_that_waits_itself() -> None:
    runs = [run_of("a", topics="x"), run_of("b", topics="x,y"), run_of("c", topics="y")]
    waiting = waiting_turns(runs)
    assert [name for name in ("a", "b", "c") if name in waiting] == ["b", "c"]


@pytest.mark.parametrize("job", ["skew", "audit"])
@pytest.mark.parametrize("folder", ["/reports/x", "/reports/x/"])
def test_two_runs_of_any_jobs_do_not_write_one_report_at_once(job: str, folder: str) -> None:
    waiting = waiting_turns([run_of("a", job="skew", report="/reports/x"), run_of("b", job=job, report=folder)])
    assert {name: why.message for name, why in waiting.items()} == {
        "b": (
            "the job skew for the report /reports/x is under way in the MaintenanceJob a; this "
            "MaintenanceJob begins after the other MaintenanceJob has ended"
        )
    }
    assert not waiting_turns([run_of("a", job="skew", report="/r/1"), run_of("b", job="skew", report="/r/2")])


def test_one_run_at_a_time_restores_a_topic_whichever_option_names_it() -> None:
    """Without `into` the topic is restored under its own name."""
    into_it = run_of("a", job="restore", topic="flights", archive="/archive/1", into="copy")
    under_its_name = run_of("b", job="restore", topic="copy", archive="/archive/2")
    waiting = waiting_turns([into_it, under_its_name])
    assert {name: why.message.split(" is ")[0] for name, why in waiting.items()} == {
        "b": "the job restore for the topic copy"
    }


def test_the_options_of_each_of_many_runs_are_read_once() -> None:
    reads = Counter[str]()

    class Counted(dict[str, str]):
        def get(self, name: str, default: Any = None) -> Any:
            reads[name] += 1
            return super().get(name, default)

    runs = [run_of(f"r-{number}", topic=f"t-{number}") for number in range(RUNS)]
    counted = [replace(run, spec=replace(run.spec, options=Counted(run.spec.options))) for run in runs]
    assert not waiting_turns(counted)
    assert reads == dict.fromkeys(ABOUT, RUNS)
