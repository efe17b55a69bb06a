"""A driver's progress in its pod's annotation, on a real API server, with the account of a driver."""

import json
from pathlib import Path

import pytest

from barnabas_jobs.app.run import ANNOTATION, PAUSE_S, DriverPod
from barnabas_jobs.planning.options import Ending
from barnabas_jobs.planning.progress import Amount, Progress
from harness.deadline import wait_for
from local_kubernetes.control_plane import ControlPlane

NAMESPACE = "drivers"


def progress(done: int) -> Progress:
    return Progress(phase="archiving", stages=Amount(0, 1), records=Amount(done, 100), records_per_second=done)


def await_right(plane: ControlPlane, expected: str) -> None:
    """Wait until the API server's own watch has seen a role binding, or its deletion."""
    asked = ("auth", "can-i", "patch", "pods", f"--as=system:serviceaccount:{NAMESPACE}:driver")
    wait_for(lambda: plane.kubectl.ask("-n", NAMESPACE, *asked).stdout, lambda said: said == f"{expected}\n")


@pytest.fixture
def account(api_server: ControlPlane, tmp_path: Path) -> Path:
    """The folder that Kubernetes mounts, with the token of an account that may patch pods and the authority."""
    kubectl = api_server.kubectl
    kubectl("create", "namespace", NAMESPACE)
    kubectl("-n", NAMESPACE, "create", "serviceaccount", "driver")
    kubectl("-n", NAMESPACE, "create", "role", "driver", "--verb=patch", "--resource=pods")
    kubectl("-n", NAMESPACE, "create", "rolebinding", "driver", "--role=driver", f"--serviceaccount={NAMESPACE}:driver")
    await_right(api_server, "yes")
    container = {"name": "driver", "image": "none"}
    spec = {"containers": [container], "automountServiceAccountToken": False, "serviceAccountName": "driver"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "archive-1"}, "spec": spec}
    kubectl("-n", NAMESPACE, "apply", "-f-", stdin=json.dumps(pod))
    (tmp_path / "token").write_text(kubectl("-n", NAMESPACE, "create", "token", "driver"), encoding="ascii")
    (tmp_path / "ca.crt").write_bytes(api_server.authority.certificate.read_bytes())
    return tmp_path


def test_progress_is_written_at_most_every_five_seconds_and_a_refusal_is_logged_once(
    api_server: ControlPlane, account: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kubectl = api_server.kubectl
    now_s = [100.0]
    url = f"{api_server.url}/api/v1/namespaces/{NAMESPACE}/pods/archive-1"
    pod = DriverPod(url, account, account / "termination-log", lambda: now_s[0])

    def told() -> int:
        found = json.loads(kubectl("-n", NAMESPACE, "get", "pod", "archive-1", "-o=json"))
        return int(json.loads(found["metadata"]["annotations"][ANNOTATION])["records"]["done"])

    pod.update(progress(1))
    assert told() == 1
    pod.update(progress(2))
    assert told() == 1
    now_s[0] += PAUSE_S
    pod.update(progress(3))
    assert told() == 3
    pod.update(progress(4), last=True)
    assert told() == 4
    assert capsys.readouterr().err == ""
    kubectl("-n", NAMESPACE, "delete", "rolebinding", "driver")
    await_right(api_server, "no")
    for done in (5, 6):
        pod.update(progress(done), last=True)
    assert told() == 4
    assert capsys.readouterr().err.count("HTTP Error 403: Forbidden") == 1
    pod.end(Ending(exit=3, message="differs", result={"records": 7}))
    assert json.loads((account / "termination-log").read_bytes()) == {
        "exit": 3,
        "message": "differs",
        "result": {"records": 7},
    }


@pytest.mark.parametrize("lacks", ["BARNABAS_POD_NAME", "BARNABAS_POD_NAMESPACE", "KUBERNETES_SERVICE_HOST"])
def test_a_process_outside_of_a_pod_has_no_driver_pod(lacks: str) -> None:
    names = ("BARNABAS_POD_NAME", "BARNABAS_POD_NAMESPACE", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    given = dict.fromkeys(names, "1")
    assert DriverPod.here(given) is not None
    assert DriverPod.here({**given, lacks: ""}) is None
