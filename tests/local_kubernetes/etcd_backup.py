"""etcd is backed up, and an older state of it put back, as after an accident."""

import base64
import json
import shutil
import signal
import urllib.request
from pathlib import Path
from typing import Any, Final

from harness.deadline import PATIENCE_S, wait_for
from local_kubernetes.control_plane import ControlPlane

BUMP: Final = base64.b64encode(b"bump").decode()


def back_up(plane: ControlPlane, folder: Path) -> None:
    """What etcd has on its disk at one moment, in place of what was in the folder before."""
    shutil.rmtree(folder, ignore_errors=True)
    plane.daemons.send("etcd", signal.SIGSTOP)
    try:
        shutil.copytree(plane.folder / "etcd", folder)
    finally:
        plane.daemons.send("etcd", signal.SIGCONT)


def put_back(plane: ControlPlane, folder: Path, *, bump_revision: bool = True) -> None:
    """Returns when the API server serves the older state.

    Revisions go on where they were, as `etcdutl snapshot restore --bump-revision` has it: otherwise who watched the API
    server waits for those that are there no more.
    """
    before = _revision(plane)
    plane.stop_all()
    shutil.rmtree(plane.folder / "etcd")
    shutil.copytree(folder, plane.folder / "etcd")
    plane.start_etcd()
    wait_for(lambda: _answers(plane))
    while bump_revision and _revision(plane) <= before:
        _ask(plane, "kv/put", {"key": BUMP, "value": BUMP})
    plane.start_again()


def _answers(plane: ControlPlane) -> bool:
    try:
        return _revision(plane) > 0
    except OSError:
        return False


def _revision(plane: ControlPlane) -> int:
    return int(_ask(plane, "maintenance/status", {})["header"]["revision"])


def _ask(plane: ControlPlane, method: str, body: dict[str, str]) -> dict[str, Any]:
    request = urllib.request.Request(f"{plane.etcd_url}/v3/{method}", json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
