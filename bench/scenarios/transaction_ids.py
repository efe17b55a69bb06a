"""Many unused transactional ids: loaded at a start, and expired beside a producer."""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import raw_requests
from bench.clients.job import NotRun
from bench.clients.transactional_ids import await_id, count_ids, make_ids, transactional_id
from bench.metrics import Measurement
from bench.processes import rss_mb
from bench.scenarios.pulses import produce_round_trips
from bench.scenarios.stand import Stand
from bench.topics import create
from harness.server_process import ServerFailed, ServerProcess

TOPIC: Final = "beside"
MAKE_SECONDS_MAX: Final = 100.0
SERVED_SECONDS_MAX: Final = 180.0
EXPIRED_SECONDS_MAX: Final = 120.0
POLL_S: Final = 1.0
ROUND_TRIPS_MIN: Final = 500
CLEANUP_MS: Final = 10_000
"""The interval in which both look for expired ids. It leaves time to see all ids first."""
EXPIRING: Final = {
    "transactional.id.expiration.ms": 1,
    "transaction.remove.expired.transaction.cleanup.interval.ms": CLEANUP_MS,
}


@dataclass(frozen=True, slots=True)
class TransactionalIds:
    """A broker with `count` ids restarts, and restarts once more with settings that expire them all."""

    count: int

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the start until the last id is served, resident memory then, and round trips while ids expire."""
        with _fresh(stand, peer) as (server, folder):
            server.start()
            create(server.bootstrap, [TOPIC], 1)
            stand.status.step(f"{self.count:,} ids are made")
            make_ids(server.port, self.count, MAKE_SECONDS_MAX)
            server.stop()
            stand.status.step("the start that is measured")
            loaded_s = self._loaded_seconds(server)
            time.sleep(stand.limits.settle_s)
            loaded = {"loaded_s": loaded_s, "rss_mb": rss_mb(server.pid)}
            server.stop()
            stand.status.step("the ids expire")
            _add_settings(folder / "server.properties")
            server.start()
            return {**loaded, **self._expired(server)}

    def _loaded_seconds(self, server: ServerProcess) -> float:
        begun_s = time.monotonic()
        server.launch()
        return await_id(server.port, transactional_id(self.count - 1), SERVED_SECONDS_MAX) - begun_s

    def _expired(self, server: ServerProcess) -> Measurement:
        """Count ids in a separate thread, while this one times a producer."""
        expired: list[float] = []
        counting = threading.Thread(target=lambda: expired.append(_seconds_to_none(server.port)))
        begun_s = time.monotonic()
        counting.start()
        if raw_requests.wait_for_acknowledgement(server.port, TOPIC, SERVED_SECONDS_MAX) is None:
            raise NotRun(f"no record acknowledged within {SERVED_SECONDS_MAX:.0f} s")
        trips = produce_round_trips(server.port, TOPIC, ROUND_TRIPS_MIN, counting.is_alive)
        counting.join()
        if not expired or expired[0] < 0:
            raise NotRun(f"ids were left {EXPIRED_SECONDS_MAX:.0f} s after the start")
        return {**trips, "expired_s": expired[0] - begun_s}


def _seconds_to_none(port: int) -> float:
    """Return the time at which no id was left, once there were some (monotonic), or -1 if that takes too long."""
    deadline = time.monotonic() + EXPIRED_SECONDS_MAX
    seen = False
    while time.monotonic() < deadline:
        count = count_ids(port)
        if seen and count == 0:
            return time.monotonic()
        seen = seen or bool(count)
        time.sleep(POLL_S)
    return -1.0


def _add_settings(config: Path) -> None:
    with config.open("a", encoding="utf-8") as lines:
        lines.writelines(f"{name}={value}\n" for name, value in EXPIRING.items())


@contextmanager
def _fresh(stand: Stand, peer: str) -> Iterator[tuple[ServerProcess, Path]]:
    server, folder = stand.brokers.fresh(peer)
    try:
        yield server, folder
    except ServerFailed as failure:
        raise NotRun(str(failure)[-500:]) from None
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)
