"""Upgrade and rollback between versions of the resources, by helm and on a real API server.

The next version is made from the same types as the published one. The chart has four releases: the first is as
published; the second also serves the next version; the third stores the next version; the fourth serves only that.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.crd import Version, crd_of
from barnabas_operator.resources.kind import GROUP, VERSION
from barnabas_operator.resources.yaml_documents import yaml_text
from documents.pages import DOCS, Run, steps
from documents.reader import BASH
from harness.deadline import wait_for
from local_kubernetes.apiserver import own_api_server
from local_kubernetes.control_plane import ControlPlane
from local_kubernetes.helm import CHART, ask_helm

pytestmark = [pytest.mark.slow, pytest.mark.soak(only=True)]

NEXT: Final = "v1beta1"
NAMESPACE: Final = "air"
RELEASES: Final[Mapping[int, Sequence[Version]]] = {
    1: (Version(VERSION),),
    2: (Version(VERSION), Version(NEXT, is_stored=False)),
    3: (Version(NEXT), Version(VERSION, is_stored=False)),
    4: (Version(NEXT),),
}
CRDS: Final = {f"{kind.plural}.{GROUP}": kind for kind in KINDS.values()}
SPECS: Final[Mapping[str, Mapping[str, Any]]] = {
    "Cluster": {"storage": {"volumes": [{"id": 0, "size": "5Gi"}]}},
    "Topic": {"partitions": 3},
    "User": {"authentication": {"type": "external"}},
    "ConsumerGroup": {"lagObjective": {"maxRecords": 10}},
    "MaintenanceJob": {"cluster": "main", "job": "skew", "options": {"report": "/reports/skew"}},
}
assert SPECS.keys() == KINDS.keys()
UPGRADE: Final = DOCS / "how-to" / "upgrade.md"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A separate API server, since its definitions are shared by all tests."""
    with own_api_server(tmp_path / "api-server") as own:
        own.kubectl("create", "namespace", NAMESPACE)
        yield own


class Releases:
    """Releases of the chart, installed one after the other."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder

    def ask(self, verb: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return ask_helm(verb, "barnabas", *arguments, f"--namespace={NAMESPACE}", of=self._plane.kubectl)

    def upgrade(self, number: int) -> subprocess.CompletedProcess[str]:
        """Upgrade to the chart of that release from any other."""
        chart = self._folder / f"chart-{number}"
        shutil.copytree(CHART, chart, dirs_exist_ok=True)
        for name, kind in CRDS.items():
            file = chart / "crd-files" / f"{name}.yaml"
            file.write_text(yaml_text(crd_of(kind, RELEASES[number])), encoding="utf-8")
        done = self.ask("upgrade", str(chart), "--install", "--set=webhook.enabled=false")
        if done.returncode == 0:
            self.await_versions(number)
        return done

    def await_versions(self, number: int) -> None:
        """Wait until the API server serves the versions of that release."""
        wanted = {each.name for each in RELEASES[number]}

        def served() -> set[str]:
            found = json.loads(self._plane.kubectl("get", "--raw", f"/apis/{GROUP}"))
            return {each["version"] for each in found["versions"]}

        wait_for(served, lambda now: now == wanted)


@pytest.fixture
def releases(plane: ControlPlane, tmp_path: Path) -> Releases:
    return Releases(plane, tmp_path)


def apply(plane: ControlPlane, name: str, version: str = VERSION) -> None:
    """Apply a resource of each kind."""
    for kind, spec in SPECS.items():
        meta = {"name": name, "namespace": NAMESPACE}
        item = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": meta, "spec": spec}
        plane.kubectl("apply", "-f-", stdin=json.dumps(item))


def read(plane: ControlPlane, version: str = VERSION) -> set[tuple[str, str]]:
    """Return kind and name of each resource in a version; check that each has the applied spec."""
    found = set()
    for name, kind in KINDS.items():
        listed = json.loads(plane.kubectl("get", "-A", f"{kind.plural}.{version}.{GROUP}", "-ojson"))
        for each in listed["items"]:
            assert each["apiVersion"] == f"{GROUP}/{version}"
            assert holds(each["spec"], SPECS[name])
            found.add((name, each["metadata"]["name"]))
    return found


def holds(stored: Any, said: Any) -> bool:
    """True if the stored value has all that was applied; the API server adds defaults."""
    match said:
        case dict():
            return all(name in stored and holds(stored[name], value) for name, value in said.items())
        case list():
            return len(stored) == len(said) and all(map(holds, stored, said))
    return bool(stored == said)


def every_kind(*names: str) -> set[tuple[str, str]]:
    return {(kind, name) for kind in SPECS for name in names}


def stored_versions(plane: ControlPlane) -> set[tuple[str, ...]]:
    path = "-ojsonpath={.status.storedVersions[*]}"
    return {tuple(plane.kubectl("get", "crd", name, path).split()) for name in CRDS}


def migrate(plane: ControlPlane, version: str) -> None:
    """Store all resources in the current storage version, by the commands of the page about upgrades."""
    own = plane.kubectl
    path = os.pathsep.join([str(own.program.parent), os.environ["PATH"]])
    environment = {**own.environment, "PATH": path, "KUBECONFIG": str(own.kubeconfig)}
    for step in steps(UPGRADE):
        assert isinstance(step, Run)
        commands = step.commands.replace("VERSION", version)
        subprocess.run([*BASH, commands], check=True, env=environment)


def test_resources_survive_upgrades_to_a_new_stored_version_and_rollbacks(
    plane: ControlPlane, releases: Releases
) -> None:
    for number in (1, 2, 3):
        assert releases.upgrade(number).returncode == 0
        apply(plane, f"in-{number}")
    everything = every_kind("in-1", "in-2", "in-3")
    assert read(plane) == read(plane, NEXT) == everything
    assert stored_versions(plane) == {(VERSION, NEXT)}
    too_far = releases.ask("rollback", "1")
    assert too_far.returncode != 0
    assert f'"{NEXT}": missing from spec.versions' in too_far.stderr
    back = releases.ask("rollback", "2")
    assert back.returncode == 0, back.stderr
    assert read(plane) == read(plane, NEXT) == everything
    migrate(plane, VERSION)
    back = releases.ask("rollback", "1")
    assert back.returncode == 0, back.stderr
    releases.await_versions(1)
    assert read(plane) == everything
    assert stored_versions(plane) == {(VERSION,)}
