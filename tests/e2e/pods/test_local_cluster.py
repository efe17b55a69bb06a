"""`make kubernetes` by itself: it goes as it came, and what it changed on the machine is as before, however it ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.deadline import wait_for
from harness.require import missing
from local_kubernetes.binaries import CannotStart
from local_kubernetes.cluster import NETWORK_FILE, LocalCluster
from local_kubernetes.control_plane import NODES
from local_kubernetes.node import MACHINE_SETTINGS, OWN_FOLDERS, check_machine

pytestmark = pytest.mark.soak(only=True)
TESTS = Path(__file__).resolve().parents[2]
STARTS_SECONDS_MAX = 180
OWNER = """
import signal, sys
from pathlib import Path
from local_kubernetes.cluster import LocalCluster
LocalCluster.begin(Path(sys.argv[1]), outlive=False).up()
print("up", flush=True)
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a cluster of the test's own is; ended after it if it still is there."""
    if os.environ.get("E2E") != "local":
        pytest.skip("the cluster is not local")
    try:
        check_machine()
    except CannotStart as reason:
        missing(reason)
    folder = tmp_path / "cluster"
    yield folder
    if (folder / NETWORK_FILE).exists():
        _make("kubernetes-down", folder)


def _make(target: str, folder: Path, *options: str) -> str:
    return _run("make", "--no-print-directory", target, f"FOLDER={folder}", *options)


def _run(*command: str) -> str:
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _settings() -> dict[str, str]:
    return {name: Path("/proc/sys", name).read_text(encoding="ascii") for name in MACHINE_SETTINGS}


def _traces(number: str, folder: Path) -> list[str]:
    """What would tell that a cluster of this number is or was here."""
    commands = [path.parent / "cmdline" for path in Path("/proc").glob("[0-9]*/exe")]
    processes = [path.read_bytes().replace(b"\0", b" ").decode() for path in commands if path.exists()]
    looks = (["ip", "-o", "link"], ["ip", "route"], ["mount"], ["iptables-save"])
    lines = [line for look in looks for line in subprocess.check_output(look, text=True).splitlines()]
    words = (f"e2e{number}-", f"10.200.{number}.", f"10.201.{number}.", f"10.202.{number}.", str(folder))
    cgroups = [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/barnabas-e2e{number}-*")]
    return [line for line in (*processes, *lines, *cgroups) if any(word in line for word in words)] + cgroups


def test_a_cluster_by_itself_stays_until_it_is_taken_down_and_leaves_the_machine_as_it_was(folder: Path) -> None:
    before = _settings()
    told = _make("kubernetes", folder, "NODES=2", "HELM=1").splitlines()
    export = next(line for line in told if line.startswith(f"export KUBECONFIG={folder}/"))
    assert f"make kubernetes-down FOLDER={folder}" in told
    nodes = _run("bash", "-c", f"{export}; kubectl get nodes --no-headers").splitlines()
    assert [line.split()[:2] for line in nodes] == [["node-1", "Ready"], ["node-2", "Ready"]]
    apply = "kubectl -n kafka apply --dry-run=server -f examples/kubernetes"
    assert "cluster.barnabas.dev/flights created" in _run("bash", "-c", f"{export}; {apply}")
    again = _make("kubernetes", folder)
    assert f"A Kubernetes runs already:\n  folder         {folder}\n" in again
    assert export in again
    number = (folder / NETWORK_FILE).read_text(encoding="ascii")
    assert _traces(number, folder)
    assert _settings() == before
    _make("kubernetes-down", folder)
    assert not folder.exists()
    assert not _traces(number, folder)
    assert _settings() == before
    assert "nothing to end" in _make("kubernetes-down", folder)


@pytest.mark.parametrize("reached", [NETWORK_FILE, "kubeconfig", f"run/{NODES[0]}-kubelet.pid"])
def test_a_cluster_whose_starter_was_killed_on_the_way_is_taken_down(folder: Path, reached: str) -> None:
    command = [sys.executable, "-m", "local_kubernetes", f"--folder={folder}", "up"]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.DEVNULL) as starter:
        wait_for((folder / reached).exists, seconds_max=STARTS_SECONDS_MAX)
        starter.kill()
    number = (folder / NETWORK_FILE).read_text(encoding="ascii")
    second = subprocess.run(command, cwd=TESTS, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert f"`make kubernetes-down FOLDER={folder}` removes it" in second.stderr
    _make("kubernetes-down", folder)
    assert not folder.exists()
    assert not _traces(number, folder)


def test_a_cluster_that_goes_down_leaves_the_mounts_of_one_beside_it(folder: Path, tmp_path: Path) -> None:
    first = LocalCluster.begin(folder, outlive=False)
    second = LocalCluster.begin(tmp_path / "beside", outlive=False)
    try:
        first.down()
        mounted = second.nodes[NODES[0]].run("cat", "/proc/self/mounts").splitlines()
        assert set(OWN_FOLDERS.values()) <= {line.split()[1] for line in mounted}
    finally:
        second.down()


def test_a_cluster_whose_owner_is_killed_keeps_no_process_and_no_address(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(folder)]
    with subprocess.Popen(command, cwd=TESTS, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "up\n"
        owner.send_signal(signal.SIGKILL)
    number = (folder / NETWORK_FILE).read_text(encoding="ascii")
    wait_for(
        lambda: [line for line in _traces(number, folder) if "cgroup" not in line],
        lambda traces: not traces,
        seconds_max=60,
    )
    other = LocalCluster.begin(tmp_path / "other", outlive=False)
    other.down()
    assert str(other.network.number) != number, "control groups of the one that was killed are still there"
