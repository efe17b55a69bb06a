"""The command in a driver's pod that `spark-submit` made, with the arguments that Spark adds."""

import json
import os
import signal
from pathlib import Path

import pytest

from barnabas_jobs.app import main as command
from barnabas_jobs.app.main import EXIT_TERMINATED, EXIT_USAGE, OF_SUBMISSION, main
from barnabas_jobs.app.run import DriverPod, Request
from barnabas_jobs.planning.options import Ending

OF_SPARK = ["driver", "--properties-file", "/opt/spark/conf/spark.properties"]
OF_SPARK += ["--class", "org.apache.spark.deploy.PythonRunner", "local:///opt/barnabas/driver.py"]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """The list of runs that the command begins; the test's environment has no variables of a submission."""
    requests: list[Request] = []

    def run_job(request: Request, _: DriverPod | None) -> Ending:
        requests.append(request)
        return Ending(exit=3, message="found something")

    monkeypatch.setattr(command, "run_job", run_job)
    return requests


def test_the_driver_runs_the_job_named_after_sparks_arguments(
    asked: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**dict.fromkeys(OF_SUBMISSION, "x"), "SPARK_HOME": "/opt/spark"}
    monkeypatch.setattr("os.environ", environment)
    words = ["run", "archive", "--option=topic=a b", "--master=k8s://https://api", "--conf=spark.x=--y", "--jars=/j"]
    assert main([*OF_SPARK, *words]) == 3
    (request,) = asked
    assert (request.job, request.words, request.master) == ("archive", ["topic=a b"], "k8s://https://api")
    assert (request.conf, request.jars) == ({"spark.x": "--y"}, Path("/j"))
    assert environment == {"SPARK_HOME": "/opt/spark"}


@pytest.mark.parametrize("words", [[], ["list"], ["executor"], ["driver", *OF_SPARK]])
def test_the_driver_refuses_other_commands_than_run(
    words: list[str], asked: list[Request], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*OF_SPARK, *words]) == EXIT_USAGE
    assert "allowed: `run` and its arguments" in capsys.readouterr().err
    assert not asked


def test_the_result_of_a_run_is_written_to_the_termination_log(
    asked: list[Request], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    log = tmp_path / "termination-log"
    pod = DriverPod("http://nowhere", tmp_path, log)
    monkeypatch.setattr(DriverPod, "here", lambda _: pod)
    assert main([*OF_SPARK, "run", "archive", "--option=topic=t", "--jars=/j"]) == 3
    assert json.loads(log.read_text())["message"] == "found something"
    assert len(asked) == 1


def test_sigterm_before_the_job_begins_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Loading the job takes seconds and logs nothing, so without the message the reason would be unknown."""

    def ended(_: Request, __: DriverPod | None) -> Ending:
        os.kill(os.getpid(), signal.SIGTERM)
        return Ending(exit=0, message="SIGTERM did not end it")

    monkeypatch.setattr(command, "run_job", ended)
    log = tmp_path / "termination-log"
    monkeypatch.setattr(DriverPod, "here", lambda _: DriverPod("http://nowhere", tmp_path, log))
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # SIGTERM would end the tests.
    try:
        assert main([*OF_SPARK, "run", "archive", "--option=topic=t", "--jars=/j"]) == EXIT_TERMINATED
        assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN), "the handler must be restored"
    finally:
        signal.signal(signal.SIGTERM, before)
    assert json.loads(log.read_text())["message"].startswith("SIGTERM ended the job")
    assert "SIGTERM ended the job" in capsys.readouterr().err
