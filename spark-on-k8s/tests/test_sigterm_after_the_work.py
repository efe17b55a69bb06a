"""SIGTERM after a job's result and before its process ends, as when a node is drained while Spark stops."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from barnabas_jobs.app import run
from barnabas_jobs.app.run import JOBS, Job
from barnabas_jobs.planning.progress import Amount, Seen


class Options(msgspec.Struct):
    """The job has no options."""


class Result(msgspec.Struct):
    """The result of a job that does nothing."""

    fine: bool = True
    records: int = 7


class StoppingSession:
    """A session that sends SIGTERM to the process while it stops."""

    def stop(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_after_the_work_is_done_does_not_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = SimpleNamespace(Options=Options, run=lambda _spark, _options: Result())
    monkeypatch.setitem(sys.modules, "quick_job", module)
    monkeypatch.setitem(JOBS, "quick", Job("quick_job", "nothing"))
    monkeypatch.setattr(run, "session", lambda *_, **__: StoppingSession())
    seen = Seen(phase="", stages=Amount(0, 0), records=Amount(0, None))
    monkeypatch.setattr(run, "SparkStatus", lambda _: SimpleNamespace(seen=lambda: seen))
    before = signal.getsignal(signal.SIGTERM)
    request = run.Request(job="quick", words=(), master="local", jars=Path("/"), conf={})
    with run.sigterm_raises():
        ending = run.run_job(request, None)
    assert (ending.exit, ending.message) == (0, "done")
    assert ending.result is not None
    assert ending.result["records"] == 7
    assert signal.getsignal(signal.SIGTERM) == before
