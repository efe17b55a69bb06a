"""Programs in the background can be ended by a later process, even if their starter was killed."""

import os
import signal
import threading
from pathlib import Path

from harness.deadline import wait_for
from local_kubernetes.daemons import Daemons
from local_kubernetes.whole_file import write_whole


def test_a_program_whose_starter_was_killed_before_it_wrote_the_pid_is_ended(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started = Daemons(folder, outlive=True)
    started.start("sleeper", ["sh", "-c", "sleep 60 & wait"])
    pid = started.pid("sleeper")
    children = Path(f"/proc/{pid}/task/{pid}/children")
    child = wait_for(lambda: children.read_text(encoding="ascii").split())[0]
    (folder / "sleeper.pid").unlink()
    Daemons(folder, outlive=True).stop_all()
    assert not started.is_running("sleeper")
    assert not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes()


def test_a_paused_and_continued_program_is_ended_even_as_a_zombie(tmp_path: Path) -> None:
    """Its starter lives and never waits for it, so the kernel keeps a zombie, which counts as ended."""
    started, ends = Daemons(tmp_path, outlive=True), Daemons(tmp_path, outlive=True)
    started.start("sleeper", ["sleep", "60"])
    pid = started.pid("sleeper")
    ends.send("sleeper", signal.SIGSTOP)
    wait_for(lambda: state_of(pid) == "T")
    ends.send("sleeper", signal.SIGCONT)
    ends.stop_all()
    assert state_of(pid) == "Z"
    assert ends.names() == []
    assert not started.is_running("sleeper")


def state_of(pid: int) -> str:
    """Return the kernel's letter for the state: T is stopped, Z is a zombie."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_a_pid_file_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "sleeper.pid"
    write_whole(path, "1 2 3 4")

    def write_often() -> None:
        for _ in range(2_000):
            write_whole(path, "1 2 3 4")

    written = threading.Thread(target=write_often)
    written.start()
    seen = {path.read_text(encoding="ascii")}
    while written.is_alive():
        seen.add(path.read_text(encoding="ascii"))
    assert seen == {"1 2 3 4"}
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_programs_of_another_folder_are_not_ended(tmp_path: Path) -> None:
    other = Daemons(tmp_path / "run-of-another", outlive=False)
    other.start("sleeper", ["sleep", "60"])
    pid = other.pid("sleeper")
    Daemons(tmp_path / "run", outlive=True).stop_all()
    os.kill(pid, 0)
    assert other.is_running("sleeper")
    other.stop_all()
    assert not other.is_running("sleeper")
