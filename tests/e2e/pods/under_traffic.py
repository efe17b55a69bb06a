"""Checks the promises of a Cluster, under a producer with acks=all and a group outside of Kubernetes.

Nothing that was acknowledged is lost, no client sees an error, no partition has fewer replicas in sync than writers
ask for, and in the end the Cluster is whole again.

with under_traffic(castle, figures, "a broker is killed", "killed"):
    castle.crash("flights-broker-1")
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from e2e.pods.castle import Castle
from e2e.pods.figures import Figures
from e2e.pods.in_sync import InSync
from e2e.pods.traffic import Traffic
from harness.soak import took

PARTITIONS: Final = 6
MIN_IN_SYNC: Final = 2
STALL_SECONDS_MAX: Final = 2.0
"""The longest stall of writers, readers and of any record.

Without other load 0.1 to 1 s are usual. Only the soak asserts it, because the clients share the processors.
"""
KILL_SECONDS_MAX: Final = 3.0
"""The same bound if a broker is killed: its next life reports that the one before has ended."""


@contextmanager
def under_traffic(
    castle: Castle, figures: Figures, what: str, topic: str, stall_seconds_max: float = STALL_SECONDS_MAX
) -> Iterator[Traffic]:
    """Write and read a new topic while `what` happens inside; add a row with the time that it took."""
    castle.create_topic(topic, PARTITIONS)
    began_s = time.monotonic()
    with InSync(castle.bootstrap) as in_sync, Traffic(castle.bootstrap, topic, PARTITIONS) as traffic:
        yield traffic
        castle.await_ready()
        traffic.await_progress()
    aim = f"no stall of {stall_seconds_max:g} s"
    figures.tell(what, f"{time.monotonic() - began_s:.0f} s, {traffic.summary()}", aim)
    took(f"{what}: the longest stall", traffic.longest_stall_s, stall_seconds_max)
    assert traffic.problems == []
    assert in_sync.looks > in_sync.failed_looks, f"{in_sync.failed_looks} looks failed, {in_sync.looks} did not"
    assert in_sync.fewest >= MIN_IN_SYNC
