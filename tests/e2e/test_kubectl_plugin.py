"""The kubectl plugin on a real API server; the commands that need pods are in `tests/e2e/pods`."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.plugin import run_plugin

SPACE = "plugin"
POD = "flights-broker-0"
LABELS = {"barnabas.dev/cluster": "flights"}
SECRET = "n0b0dy-sees-this"


@pytest.fixture(scope="module")
def plane(defined_api_server: ControlPlane) -> ControlPlane:
    """Return an API server with a Cluster, the pod of a broker, and objects that hold a password."""
    create = defined_api_server.requests.create
    create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    create(_object("v1", "ServiceAccount", "default"))
    create(_object("barnabas.dev/v1alpha1", "Cluster", "flights", spec={"insecure": True}))
    create(_object("v1", "Pod", POD, spec={"containers": [{"name": "broker", "image": "b"}]}))
    create(_object("v1", "Secret", "flights-admin", stringData={"password": SECRET}))
    create(_object("v1", "ConfigMap", "flights-settings", data={"server.properties": f"ssl.key.password={SECRET}\n"}))
    return defined_api_server


def _object(version: str, kind: str, name: str, **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": SPACE, "labels": LABELS}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **more}


def test_why_says_what_a_broker_waits_for(plane: ControlPlane) -> None:
    rolling = {"remaining": [0], "blockedBy": "UnderReplicated", "message": "flights-3 is not in sync"}
    status = {"status": {"observedGeneration": 1, "rolling": rolling}}
    plane.kubectl(
        "patch", "cluster", "flights", "-n", SPACE, "--subresource=status", "--type=merge", f"-p={json.dumps(status)}"
    )
    expected = f"{POD} is to restart, and waits (UnderReplicated): flights-3 is not in sync.\n"
    assert run_plugin(plane.kubectl, "why", POD, "-n", SPACE) == (0, expected, "")


def test_what_does_not_exist_is_reported_with_what_to_do(plane: ControlPlane) -> None:
    code, _, errors = run_plugin(plane.kubectl, "why", "flights-broker-9", "-n", SPACE)
    assert (code, errors.splitlines()[-1]) == (
        1,
        'kubectl barnabas: Error from server (NotFound): pods "flights-broker-9" not found',
    )
    code, _, errors = run_plugin(plane.kubectl, "status", "-n", "default")
    assert (code, errors) == (
        1,
        "kubectl barnabas: the namespace default has 0 Clusters; choose another namespace with -n\n",
    )
    code, _, errors = run_plugin(plane.kubectl, "lag", "-n", SPACE)
    assert (code, "use --operator NAMESPACE/NAME" in errors) == (1, True)


def test_a_dump_has_resources_and_no_secret(plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "dump.tar.gz"
    code, out, errors = run_plugin(plane.kubectl, "dump", str(file), "-n", SPACE)
    assert code == 0, errors
    with tarfile.open(file) as tar:
        files = {name.partition("/")[2]: tar.extractfile(name) for name in tar.getnames()}
        texts = {name: read.read().decode() for name, read in files.items() if read is not None}
    assert {"CONTENTS.txt", "events.json", "resources/clusters.json", f"describe/{POD}.txt"} <= texts.keys()
    assert "ssl.key.password=[removed]" in texts["objects/configmaps.json"]
    assert not [name for name, text in texts.items() if SECRET in text]
    assert texts["CONTENTS.txt"] in out
