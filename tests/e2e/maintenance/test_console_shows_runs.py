"""The console shows what a real API server has: MaintenanceJobs, rolls, manifests; and nothing that may be secret."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from e2e.maintenance.runs import ARCHIVE, RUN
from harness.deadline import wait_for
from harness.running_console import RunningConsole, Secured, StartConsole, Visitor, logged_in
from harness.server_process import ServerFailed, ServerProcess, free_port
from harness.stock_client import StockClient
from local_kubernetes.control_plane import ControlPlane

NAMESPACE = "runs-of-the-console"
StartHere = Callable[[Path], Visitor]
VERSION = "barnabas.dev/v1alpha1"


@pytest.fixture
def visitor_by(broker: ServerProcess, tmp_path: Path) -> Iterator[StartHere]:
    """Return a function that starts a console with a kubeconfig, and returns a visitor."""
    running: list[RunningConsole] = []

    def started(kubeconfig: Path) -> Visitor:
        environment = {"KUBECONFIG": str(kubeconfig)}
        options = ("--kubernetes", NAMESPACE, "--write")
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
    whole = {"apiVersion": VERSION, "kind": RUN, "metadata": meta}
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


def set_status(plane: ControlPlane, space: str, status: object) -> None:
    patch = json.dumps({"status": status})
    plane.kubectl("patch", "cluster", "one", "-n", space, "--subresource=status", "--type=merge", f"-p={patch}")


def declare(plane: ControlPlane, space: str, cluster_id: str) -> None:
    """Declare a Cluster that is the one of the brokers, with a topic and a group."""
    for kind, name, spec in (
        ("Cluster", "one", {"insecure": True}),
        ("Topic", "declared", {"topicName": "Declared_1", "partitions": 2, "config": {"retention.ms": "<60000>"}}),
        ("ConsumerGroup", "billing", {}),
    ):
        notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "air"}
        meta = {"name": name, "namespace": space, "annotations": notes}
        plane.requests.create({"apiVersion": VERSION, "kind": kind, "metadata": meta, "spec": spec})
    set_status(plane, space, {"clusterId": cluster_id})


def test_a_roll_is_shown_as_it_happens_and_a_declared_topic_is_not_edited(
    defined_api_server: ControlPlane, broker: ServerProcess, visitor_by: StartHere
) -> None:
    plane = defined_api_server
    plane.kubectl.ask("create", "namespace", NAMESPACE)
    client = StockClient(broker.bootstrap)
    client.create_topic("Declared_1", 2)
    client.create_topic("free", 1)
    client.commit("billing", TopicPartition("free", 0, 0))
    visitor = visitor_by(plane.kubeconfig)
    cluster_id = wait_for(lambda: visitor.get("/", "application/json"), lambda told: told.status == 200).json[
        "cluster_id"
    ]
    declare(plane, NAMESPACE, cluster_id)
    assert visitor.json("/")["roll"] is None
    rolling = {"remaining": [2], "restarting": [1], "blockedBy": "UnderReplicated", "message": "3 are not in sync"}
    set_status(plane, NAMESPACE, {"rolling": rolling})
    roll = wait_for(lambda: visitor.json("/")["roll"])
    assert roll == {
        "remaining": [2],
        "restarting": [1],
        "blocked_by": "UnderReplicated",
        "message": "3 are not in sync",
    }
    assert "UnderReplicated: 3 are not in sync" in visitor.get("/").text
    set_status(plane, NAMESPACE, {"rolling": None})
    wait_for(lambda: visitor.json("/")["roll"] is None)
    page = visitor.get("/topics/Declared_1").text
    assert "Declared by the Topic declared" in page
    assert "&lt;60000&gt;" in page
    assert "Add partitions" not in page
    text = visitor.json("/topics/Declared_1")["manifest"]["text"]
    assert "team: air" in text
    assert not [word for word in ("last-applied", "managedFields", "uid", "status") if word in text]
    refused = visitor.get("/topics/Declared_1/partitions", "application/json")
    assert (refused.status, "the Topic declared declares it" in refused.text) == (409, True), refused.text
    assert visitor.get("/topics/Declared_1/produce").status == 200
    assert visitor.get("/groups/billing/reset").status == 409
    assert visitor.json("/topics/free")["manifest"] is None
    assert visitor.get("/topics/free/partitions").status == 200


def test_a_visitor_sees_with_a_token_what_kubernetes_allows_it(
    defined_api_server: ControlPlane,
    console_broker: Secured,
    start_console: StartConsole,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    plane, space = defined_api_server, "seen-by-tokens"
    plane.kubectl("create", "namespace", space)
    for name in ("sees", "blind"):
        plane.kubectl("create", "serviceaccount", name, "-n", space)
    plane.kubectl("create", "role", "sees", "-n", space, "--verb=get,list", "--resource=clusters,maintenancejobs")
    plane.kubectl("create", "rolebinding", "sees", "-n", space, "--role=sees", f"--serviceaccount={space}:sees")
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    options = ("--kubernetes", space, "--kubernetes-account", "visitor")
    console = start_console(console_broker.bootstrap, *options, properties="security.protocol=SASL_PLAINTEXT\n")
    visitor = logged_in(console, "carol")
    first = visitor.get("/maintenance", "application/json")
    assert (first.status, "give your Kubernetes token first" in first.text) == (403, True), first.text
    for name, status in (("blind", 502), ("sees", 200)):
        token = plane.kubectl("create", "token", name, "-n", space).strip()
        visitor.get("/kubernetes")
        assert visitor.post("/kubernetes", {"token": token}).status == 403
        assert visitor.post("/kubernetes", {"token": token, "csrf": visitor.csrf}).status == 303
        assert "This session has a token" in visitor.get("/kubernetes").text
        assert visitor.get("/maintenance").status == status
        assert token not in visitor.get("/kubernetes").text + console.log()
    assert logged_in(console, "carol").get("/maintenance").status == 403
    assert visitor.get("/maintenance", **{"X-Kubernetes-Token": "made-up"}).status == 502
    assert visitor.get("/maintenance", **{"X-Kubernetes-Token": "a b"}).status == 400
    with pytest.raises(ServerFailed, match="needs clusters at which visitors log in"):
        RunningConsole(console_broker.open, tmp_path, *options).process.start()
