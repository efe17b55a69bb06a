"""A real API server for tests that need no pods: `from local_kubernetes.apiserver import api_server` in a conftest.py.

Without the programs of Kubernetes on the machine the tests are skipped; under CI=true that is a failure.
`python -m local_kubernetes.apiserver FOLDER` starts one by hand until it is interrupted.
"""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from harness.deadline import wait_for
from harness.require import missing
from local_kubernetes.binaries import CannotStart, programs, require
from local_kubernetes.control_plane import ControlPlane, Place
from local_kubernetes.daemons import Daemons

LOOPBACK: Final = Place()
CRDS: Final = Path(__file__).resolve().parents[2] / "helm" / "barnabas" / "crd-files"


def prepare_api_server(folder: Path, place: Place = LOOPBACK) -> ControlPlane:
    """Return an API server with etcd, not started; it ends with the thread that starts it. Raises CannotStart."""
    require("openssl")
    return ControlPlane(folder, Daemons(folder / "run", outlive=False), programs(), place)


def define(plane: ControlPlane) -> None:
    """Apply the CRDs of the chart, and return when the API server serves all of them: a minute on a busy machine."""
    plane.kubectl("apply", *(f"-f{file}" for file in sorted(CRDS.glob("*.yaml"))))
    wait_for(lambda: plane.kubectl.ask("get", "topics,clusters").returncode == 0)


@contextmanager
def own_api_server(folder: Path) -> Iterator[ControlPlane]:
    """Run an API server for one test alone; without its programs the test is skipped."""
    try:
        plane = prepare_api_server(folder)
    except CannotStart as reason:
        missing(reason)
    try:
        plane.start_api()
        yield plane
    finally:
        plane.daemons.stop_all()


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Run an API server for this test process alone; each test takes a namespace of its own."""
    with own_api_server(tmp_path_factory.mktemp("api-server")) as plane:
        yield plane


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    plane = prepare_api_server(folder)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        plane.start_api()
        print(f"export KUBECONFIG={plane.kubeconfig}  # until interrupted", flush=True)
        signal.pause()
    finally:
        plane.daemons.stop_all()


if __name__ == "__main__":
    main()
