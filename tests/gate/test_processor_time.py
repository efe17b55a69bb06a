"""The processor time of processes and their children counts while they run and after they have ended."""

import subprocess
import sys
from functools import partial
from operator import le

from gate.processor_time import used_s
from harness.deadline import wait_for

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
THEN_STAYS = f"{BUSY}print(flush=True); input()"
BELOW = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {THEN_STAYS!r}])"


def test_the_time_of_a_grandchild_counts_while_it_runs_and_after_it_has_ended() -> None:
    before_s = used_s()
    with subprocess.Popen([sys.executable, "-c", BELOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "the process must have a pipe"
        process.stdout.readline()
        wait_for(used_s, partial(le, before_s + 0.3))
        process.communicate(b"\n")
    assert used_s() >= before_s + 0.3
