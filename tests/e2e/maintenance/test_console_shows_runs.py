"""The console shows MaintenanceJobs that a real API server has, and nothing that may be secret."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.maintenance.runs import ARCHIVE, RUN
from harness.deadline import wait_for
from harness.running_console import RunningConsole, Visitor
from harness.server_process import ServerProcess, free_port
from local_kubernetes.control_plane import ControlPlane

NAMESPACE = "runs-of-the-console"
StartHere = Callable[[Path], Visitor]


@pytest.fixture
def visitor_by(broker: ServerProcess, tmp_path: Path) -> Iterator[StartHere]:
    """Return a function that starts a console with a kubeconfig, and returns a visitor."""
    running: list[RunningConsole] = []

    def started(kubeconfig: Path) -> Visitor:
        environment = {"KUBECONFIG": str(kubeconfig)}
        options = ("--maintenance-jobs", NAMESPACE)
        running.append(RunningConsole(broker.bootstrap, tmp_path, *options, environment=environment))
        running[-1].process.start()
        return running[-1].visitor()

    try:
        yield started
        for each in running:
            assert each.process.stop() == 0, each.log()
            assert "Traceback" not in each.log(), each.log()
    finally:
        for each in running:
            each.process.close()


def apply(plane: ControlPlane, name: str, **status: object) -> None:
    spec = {"job": "archive", "cluster": "one", "options": ARCHIVE, "env": [{"name": "TOKEN", "value": "s3cret"}]}
    meta = {"name": name, "namespace": NAMESPACE}
    whole = {"apiVersion": "barnabas.dev/v1alpha1", "kind": RUN, "metadata": meta}
    plane.requests.apply({**whole, "spec": spec})
    if status:
        where = ("maintenancejob", name, f"--namespace={NAMESPACE}", "--subresource=status", "--type=merge")
        plane.kubectl("patch", *where, "--patch", json.dumps({"status": status}))


def test_runs_are_listed_with_their_results_and_without_secrets(
    defined_api_server: ControlPlane, visitor_by: StartHere
) -> None:
    plane = defined_api_server
    plane.kubectl("create", "namespace", NAMESPACE)
    ready = {"type": "Ready", "status": "True", "reason": "Succeeded", "lastTransitionTime": "2026-11-29T06:00:00Z"}
    conditions = [{**ready, "message": "archived 100 records"}]
    result, records = {"files": ["<b>"]}, {"done": 100, "total": 100}
    apply(plane, "good", phase="Succeeded", duration="2m5s", records=records, result=result, conditions=conditions)
    apply(plane, "waits")
    visitor = visitor_by(plane.kubeconfig)
    found = wait_for(lambda: visitor.get("/maintenance?sort=name", "application/json"), lambda told: told.status == 200)
    assert [(each["name"], each["phase"], each["records"]) for each in found.json["rows"]] == [
        ("good", "Succeeded", 100),
        ("waits", "Pending", 0),
    ]
    assert [each["name"] for each in visitor.json("/maintenance?search=wai")["rows"]] == ["waits"]
    one = visitor.json("/maintenance/good")
    assert (one["message"], one["result"], one["options"]) == ("archived 100 records", result, ARCHIVE)
    page = visitor.get("/maintenance/good").text
    assert "&lt;b&gt;" in page
    assert "s3cret" not in page + str(one)
    missing = visitor.get("/maintenance/missing", "application/json")
    assert (missing.status, "not found" in missing.text) == (404, True)
    assert 'href="/maintenance"' in visitor.get("/topics").text


def test_an_api_server_that_is_away_is_named_and_takes_no_other_page(tmp_path: Path, visitor_by: StartHere) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        "current-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{free_port()}'}}}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
    )
    visitor = visitor_by(kubeconfig)
    refused = visitor.get("/maintenance", "application/json")
    assert (refused.status, "the Kubernetes API does not answer" in refused.text) == (502, True)
    assert visitor.get("/topics").status == 200
