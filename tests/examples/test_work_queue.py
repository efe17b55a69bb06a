"""The work queue of examples/kubernetes, with its own topics, group and worker, on a cluster of this machine."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from barnabas_operator.app.child_process import read_status
from barnabas_operator.resources.consumer_group import ConsumerGroupStatus
from barnabas_operator.resources.kind import DEAD_LETTERS_ENABLED, Condition, condition_of
from harness.deadline import PATIENCE_S, wait_for
from harness.running_up import RunningUp

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "kubernetes" / "work-queue.yaml"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[RunningUp]:
    running = RunningUp(tmp_path)
    yield running
    running.close()


def resources() -> Iterator[Mapping[str, Any]]:
    """Yield the documents of the example, for a folder that has only one Cluster and no Deployments."""
    for document in YAML(typ="safe").load_all(EXAMPLE):
        document["spec"] = {
            name: value for name, value in document.get("spec", {}).items() if name not in ("cluster", "scaling")
        }
        yield document


def text(document: Mapping[str, Any]) -> str:
    YAML(typ="safe").dump(document, written := io.StringIO())
    return written.getvalue()


def group_status(up: RunningUp) -> ConsumerGroupStatus:
    known = read_status(up.data)
    groups = known.groups if known is not None else ()
    return next((each.status for each in groups if each.status is not None), ConsumerGroupStatus())


def dead_letters(up: RunningUp) -> Condition | None:
    return condition_of(group_status(up).conditions, DEAD_LETTERS_ENABLED)


def test_workers_finish_all_tasks_and_put_the_one_that_is_no_number_into_the_dead_letters(
    up: RunningUp, tmp_path: Path
) -> None:
    for number, document in enumerate(resources()):
        if document["kind"] in ("Topic", "ConsumerGroup"):
            up.write(f"{number}.yaml", text(document))
        elif document["kind"] == "ConfigMap":
            for name, code in document["data"].items():
                # A task takes a tenth of a second on purpose.
                (tmp_path / name).write_text(code.replace("time.sleep(0.1)", "time.sleep(0)"), encoding="utf-8")
    up.start()
    wait_for(lambda: (up.reason("tasks"), up.reason("dlq.tasks")) == ("Reconciled", "Reconciled"))
    wait_for(lambda: dead_letters(up), lambda found: found is not None and found.status == "True")
    environment = {**os.environ, "BOOTSTRAP": up.bootstrap}
    filled = subprocess.run(
        [sys.executable, str(tmp_path / "fill.py")], env=environment, capture_output=True, check=True
    )
    assert filled.stdout == b"1000 tasks are written\n"
    with (tmp_path / "worker.log").open("wb") as log:
        command = [sys.executable, str(tmp_path / "worker.py")]
        workers = [subprocess.Popen(command, env=environment, stdout=log, stderr=log) for _ in range(2)]
    try:
        wait_for(lambda: (group_status(up).lag, [each.poll() for each in workers]), lambda found: found[0] == 0)
    finally:
        for each in workers:
            each.terminate()
        codes = [each.wait(PATIENCE_S) for each in workers]
    assert codes == [0, 0], (tmp_path / "worker.log").read_text()
    command = [sys.executable, "-m", "barnabas", "status", "--bootstrap", up.bootstrap]
    shown = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    (row,) = (line for line in shown.splitlines() if line.split()[:2] == ["workers", "share"])
    assert row.split()[-1] == "0", shown
    command = [sys.executable, str(tmp_path / "letters.py")]
    letters = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.splitlines()
    assert len(letters) == 1, (letters, shown, (tmp_path / "worker.log").read_text(), up.log())
    assert letters[0].startswith("b'no number' {'__dlq.errors.topic': 'tasks', "), letters
