"""The laptop tutorial does what it says, in a network of its own, where its ports are free."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from documents.pages import Run, Write, lacking, steps
from harness.require import require

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"


@pytest.mark.slow
def test_every_command_of_the_laptop_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    require(os.geteuid() == 0 and shutil.which("unshare"), "root, for a network of its own")
    require(shutil.which("kcat"), "kcat: apt-get install kcat")
    inside = f"ip link set lo up && exec {sys.executable} -m documents {TUTORIALS / 'laptop.md'}"
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["unshare", "--net", "bash", "-c", inside]
    done = subprocess.run(command, cwd=tmp_path, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n$ kill -9 " in done.stdout


def test_a_page_is_read_as_a_reader_does_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```yaml title="a/b.yaml"\nkind: A\n```\n```\nnot run\n```\n'
        "  ```sh\n  echo 1  2\n  ```\n  ```text\n  1 2\n  ```\n",
        encoding="utf-8",
    )
    assert list(steps(page)) == [Write("a/b.yaml", "kind: A\n"), Run("echo 1  2\n", False, ("1 2",))]
    assert lacking(("1 2", "... of 3"), "x\n1   2\n 2 of 3\n") == []
    assert lacking(("1 2",), "1 2 3") == ["1 2"]
