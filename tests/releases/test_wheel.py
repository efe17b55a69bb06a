"""The wheel in an empty environment: its users need nothing else but the package index."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.soak(only=True)

ROOT: Final = Path(__file__).resolve().parents[2]
FLIGHTS: Final = "30000"


def run(*command: str | Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**environment, **variables})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_demo_runs_with_the_wheel_in_an_empty_environment(tmp_path: Path) -> None:
    sources = tmp_path / "sources"
    sources.mkdir()
    run("bash", "-c", f"git -C '{ROOT}' archive HEAD | tar --extract --directory='{sources}'")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={tmp_path}", sources)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[demo,local]")
    said = run(python, sources / "examples" / "demo.py", DEMO_FLIGHTS=FLIGHTS)
    assert "30,000 read by each group: none lost, none twice" in " ".join(said.split())
