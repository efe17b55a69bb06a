"""Backs up etcd, and restores an older state of it, as after an accident."""

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
    """Save the state of etcd at one moment, in place of an earlier backup in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    plane.daemons.send("etcd", signal.SIGSTOP)
    try:
        shutil.copytree(plane.folder / "etcd", folder)
    finally:
        plane.daemons.send("etcd", signal.SIGCONT)


def put_back(plane: ControlPlane, folder: Path, *, bump_revision: bool = True) -> None:
    """Restore the state; return when the API server serves it.

    Revisions go on from the present ones, as with `etcdutl snapshot restore --bump-revision`: otherwise watchers
    would wait for revisions that do not exist any more.
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
