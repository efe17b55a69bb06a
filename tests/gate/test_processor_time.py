"""The time of processes counts while they run and once they have ended, also that of their children."""

import subprocess
import sys
from functools import partial
from operator import le

from gate.processor_time import used_s
from harness.deadline import wait_for

BUSY = "import time\nwhile time.process_time() < 0.3: pass\n"
THEN_STAYS = f"{BUSY}print(flush=True); input()"
BELOW = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {THEN_STAYS!r}])"


def test_a_child_of_a_child_counts_while_it_runs_and_when_both_have_ended() -> None:
    before_s = used_s()
    with subprocess.Popen([sys.executable, "-c", BELOW], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None, "it was started with a pipe"
        process.stdout.readline()
        wait_for(used_s, partial(le, before_s + 0.3))
        process.communicate(b"\n")
    assert used_s() >= before_s + 0.3
