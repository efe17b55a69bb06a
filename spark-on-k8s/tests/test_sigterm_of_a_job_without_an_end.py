"""The end of a job that runs until SIGTERM or Ctrl-C: its exit code makes Kubernetes run it again."""

import json
import os
import signal
import sys
import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from barnabas_jobs.app import run
from barnabas_jobs.app.main import main
from barnabas_jobs.app.run import JOBS, Job
from barnabas_jobs.jobs.archive import SignalName, until_signal
from barnabas_jobs.planning.errors import JobFailedLate
from barnabas_jobs.planning.progress import Amount, Seen
from harness.deadline import PATIENCE_S

COMMAND = ["run", "endless", "--master", "local[1]"]


class Options(msgspec.Struct):
    """The job has no options."""


class Result(msgspec.Struct):
    """The number of records that the job committed before a signal ended it."""

    records: int
    ended_by: SignalName | None
    fine: bool = True


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[signal.Signals]:
    """The list of signals that the job `endless` gets in turn."""
    signals: list[signal.Signals] = []

    def run_until_told(_spark: object, _options: object) -> Result:
        with until_signal() as stopping:
            for each in signals:
                os.kill(os.getpid(), each)
            assert stopping.event.wait(PATIENCE_S)
        return Result(7, stopping.ended_by)

    module: Any = SimpleNamespace(Options=Options, run=run_until_told)
    seen = Seen(phase="", stages=Amount(0, 0), records=Amount(0, None))
    monkeypatch.setitem(sys.modules, "endless_job", module)
    monkeypatch.setitem(JOBS, "endless", Job("endless_job", "nothing"))
    monkeypatch.setattr(run, "session", lambda *_, **__: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(run, "SparkStatus", lambda _: SimpleNamespace(seen=lambda: seen))
    return signals


@pytest.mark.parametrize(
    ("sent", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGTERM SIGTERM", 143), ("SIGTERM SIGINT", 143)]
)
def test_a_signal_gives_its_exit_code_and_a_result_with_the_committed_records(
    told: list[signal.Signals], sent: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    told += [signal.Signals[name] for name in sent.split()]
    assert main(COMMAND) == code
    said = capsys.readouterr()
    first = told[0].name
    assert json.loads(said.out) == {"records": 7, "ended_by": first, "fine": True}
    assert f"barnabas jobs: {first} ended the job; the next run continues after the last commit\n" in said.err


def test_a_late_failure_has_its_own_exit_code(
    told: list[signal.Signals], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> None:
        raise JobFailedLate("no broker answered")

    assert told == []
    monkeypatch.setattr(sys.modules["endless_job"], "run", fails)
    assert main(COMMAND) == 75
    assert "barnabas jobs: no broker answered\n" in capsys.readouterr().err


def test_a_job_stopped_by_its_event_ends_with_exit_code_0() -> None:
    event = threading.Event()
    with until_signal(event) as stopping:
        event.set()
    assert stopping.event is event
    assert run.ending_of(Result(7, stopping.ended_by)).exit == 0


def test_a_job_in_another_thread_leaves_the_signal_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen: list[object] = []

    def inside() -> None:
        with until_signal():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]
