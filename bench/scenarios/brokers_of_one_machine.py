"""One to four brokers on this machine under the same load: what one of them takes, and what another one adds."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.clusters import CLUSTER_KINDS
from bench.metrics import Measurement
from bench.processes import rss_mb
from bench.scenarios.load import Consume, Produce
from bench.scenarios.stand import Stand, Target, pids

CLIENTS: Final = 4
PARTITIONS: Final = 12
"""Each number of brokers up to four leads as many partitions as every other one."""


def _produce(batch_bytes: int) -> Produce:
    return Produce(
        client="librdkafka",
        record_bytes=1000,
        batch_bytes=batch_bytes,
        codec="none",
        acks="all",
        partitions=PARTITIONS,
        clients=CLIENTS,
    )


LOADS: Final[Mapping[str, Produce | Consume]] = {
    "small": _produce(16_384),
    "large": _produce(1_000_000),
    "read": Consume(client="librdkafka", record_bytes=1000, codec="none", partitions=PARTITIONS, clients=CLIENTS),
}


@dataclass(frozen=True, slots=True)
class BrokersOfOneMachine:
    """A new cluster of so many brokers, each partition with one replica, and four clients at once."""

    brokers: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return MB/s, MB for each CPU second, and the cores that the brokers used, by load; and their memory."""
        found: dict[str, float] = {}
        with self._target(stand, peer) as target:
            for name, load in LOADS.items():
                measured = load.measure_on(stand, target)
                found[f"{name}_mb_per_s"] = measured["mb_per_s"]
                found[f"{name}_mb_per_cpu_s"] = measured["mb_per_cpu_s"]
                found[f"{name}_cores"] = measured["mb_per_s"] / measured["mb_per_cpu_s"]
            return {**found, "rss_mb": rss_mb(*target.pids)}

    @contextmanager
    def _target(self, stand: Stand, peer: str) -> Iterator[Target]:
        """Start the brokers, and give them load until a JIT has compiled what the loads use."""
        with (
            tempfile.TemporaryDirectory(prefix="barnabas-bench-brokers-", ignore_cleanup_errors=True) as folder,
            closing(CLUSTER_KINDS[peer].prepare(Path(folder), brokers=self.brokers)) as cluster,
        ):
            cluster.start()
            target = Target(cluster.bootstrap, pids(cluster), cluster.bootstrap)
            deadline = time.monotonic() + stand.limits.warm_up_s
            while time.monotonic() < deadline:
                for load in LOADS.values():
                    load.measure_on(stand, target)
            yield target
