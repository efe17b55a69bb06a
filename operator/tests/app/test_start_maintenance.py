"""`barnabas start-maintenance` outside of the pods that have what it needs."""

import subprocess
from collections.abc import Callable


def test_outside_of_a_schedules_pod_it_says_what_lacks(
    barnabas: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = barnabas("start-maintenance", "one", "nightly")
    assert done.returncode == 2
    assert "POD_NAMESPACE, JOB_NAME, JOB_UID is not set; the pods of the Cluster's CronJobs have it" in done.stderr
