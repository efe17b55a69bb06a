"""How long a coordinator needs to load a large partition of `__consumer_offsets`."""

import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import raw_requests
from bench.clients.commits import commit_until
from bench.clients.job import NotRun
from bench.metrics import Measurement
from bench.processes import rss_mb
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed, ServerProcess

GROUP: Final = "readers"
TOPIC: Final = "read"
MIB: Final = 1024 * 1024
TOLD_MIB: Final = 20
COMMIT_SECONDS_MAX: Final = 60.0
SERVED_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class OffsetsLoaded:
    """One group commits `partitions` offsets repeatedly; then the broker restarts.

    The partitions are few, since their own logs are opened at the start, too, and only the offsets should count.
    """

    log_mib: int
    partitions: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the time from the start until the group's offset is returned, and resident memory after a rest."""
        server, folder = stand.brokers.fresh(peer)
        try:
            server.start()
            create(server.bootstrap, [TOPIC], self.partitions)
            self._commit(stand, server, folder)
            server.stop()
            stand.status.step("the start that is measured")
            served_s = _served_seconds(server)
            time.sleep(stand.limits.settle_s)
            return {"served_s": served_s, "rss_mb": rss_mb(server.pid)}
        except ServerFailed as failure:
            raise NotRun(str(failure)[-500:]) from None
        finally:
            server.close()
            shutil.rmtree(folder, ignore_errors=True)

    def _commit(self, stand: Stand, server: ServerProcess, folder: Path) -> None:
        mib = 0

        def is_enough() -> bool:
            nonlocal mib
            before, mib = mib, _log_bytes(folder) // MIB
            if mib // TOLD_MIB > before // TOLD_MIB:
                stand.status.step(f"{mib} of {self.log_mib} MiB of commits")
            return mib >= self.log_mib

        try:
            commit_until(server.port, GROUP, TOPIC, self.partitions, is_enough, COMMIT_SECONDS_MAX)
        except NotRun as problem:
            raise NotRun(f"{problem} ({mib} of {self.log_mib} MiB were written)") from None


def _log_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/__consumer_offsets-*/*.log"))


def _served_seconds(server: ServerProcess) -> float:
    served: list[float | None] = []
    waiter = threading.Thread(
        target=lambda: served.append(
            raw_requests.wait_for_committed_offset(server.port, GROUP, TOPIC, SERVED_SECONDS_MAX)
        )
    )
    begun_s = time.monotonic()
    waiter.start()
    server.start()
    waiter.join()
    if served[0] is None:
        raise NotRun(f"no committed offset within {SERVED_SECONDS_MAX:.0f} s of the start")
    return served[0] - begun_s
