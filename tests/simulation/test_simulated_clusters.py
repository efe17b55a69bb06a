"""F30-F49: whole clusters on simulated time keep their promises, and known mistakes do not go unseen.

Each runs in a process of its own with a fixed order of hashes, as `make sim` does: so a seed tells one story only.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SEEDS_EACH = 50

MUTANT_SEEDS = {
    "acknowledges-before-the-high-watermark": 0,
}
"""For each mistake a seed that shows it."""


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m simulation`, in one process."""
    environment = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    command = [sys.executable, "-m", "simulation", "--workers", "1", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, SEEDS_EACH))
def test_clusters_keep_their_promises(first: int) -> None:
    done = simulate("--first", str(first), "--seeds", str(SEEDS_EACH))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{SEEDS_EACH} seeds" in done.stdout


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (simulate("--seed", "3", "--story") for _ in range(2))
    assert first.returncode == second.returncode == 0
    assert len(first.stdout) > 200
    assert first.stdout.split("seeds in")[0] == second.stdout.split("seeds in")[0]


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "seed"), MUTANT_SEEDS.items())
def test_a_mistake_is_found(mutant: str, seed: int) -> None:
    done = simulate("--seed", str(seed), "--mutant", mutant)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"--seed {seed} --mutant {mutant}" in done.stdout
