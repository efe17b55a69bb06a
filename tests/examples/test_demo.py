"""The demo at the beginning of the README, run as users run it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.deadline import PATIENCE_S, wait_for
from harness.soak import size

FLIGHTS = size(40_000, 336_776)
DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


def start(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start the demo in its own folder, with its output in `output`. Ctrl-C reaches it even if ours is ignored."""
    settings = {**os.environ, "TMPDIR": str(folder), "DEMO_FLIGHTS": str(FLIGHTS), **environment}
    command = ["env", "--default-signal=INT", sys.executable, str(DEMO)]
    with (folder / "output").open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, env=settings)


def output_of(folder: Path) -> str:
    return (folder / "output").read_text(encoding="utf-8")


def processes_of(folder: Path) -> list[str]:
    """Return the command lines with the name of the folder, which the demo has started."""
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # The process has ended.
    return [line for line in lines if str(folder) in line]


@pytest.mark.slow
@pytest.mark.soak
def test_the_demo_counts_every_flight_in_both_groups_and_leaves_no_files_or_processes(tmp_path: Path) -> None:
    demo = start(tmp_path)
    assert demo.wait(PATIENCE_S) == 0, output_of(tmp_path)
    text = output_of(tmp_path)
    assert re.search(rf"^flights +12 +3 +{FLIGHTS:,} ", text, re.MULTILINE)
    assert re.search(r"^boards +classic +Stable +2 +flights +0 *$", text, re.MULTILINE)
    assert re.search(r"^archive +classic +Stable +3 +flights +0 *$", text, re.MULTILINE)
    assert re.search(r"^12 partitions [0-9.]+ s after the manifest was edited", text, re.MULTILINE)
    killed = re.search(r"s: broker (\d), which led flights-\d, was killed \(SIGKILL\)$", text, re.MULTILINE)
    seen = re.findall(r"s: leader broker (\d), in sync ([0-9, ]+)$", text, re.MULTILINE)
    assert killed is not None
    assert {leader for leader, _ in seen} - set(killed[1])
    assert seen[-1][1] == "0, 1, 2"
    assert "s: the first record that was sent after the kill was acknowledged" in text
    assert f"{FLIGHTS:,} flights acknowledged, {FLIGHTS:,} read by each group: none lost, " in text
    assert processes_of(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["output"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seen", "status"),
    [
        pytest.param("published", 130, id="at work"),
        pytest.param("Ctrl-C ends it", 0, id="kept", marks=pytest.mark.soak(only=True)),
    ],
)
def test_an_interrupt_stops_the_demos_cluster(tmp_path: Path, seen: str, status: int) -> None:
    demo = start(tmp_path, DEMO_KEEP="1")
    try:
        wait_for(lambda: demo.poll() is not None or seen in output_of(tmp_path))
        assert any("barnabas broker" in line for line in processes_of(tmp_path)), output_of(tmp_path)
    finally:
        demo.send_signal(signal.SIGINT)
    assert demo.wait(PATIENCE_S) == status
    assert processes_of(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == ["output"]
