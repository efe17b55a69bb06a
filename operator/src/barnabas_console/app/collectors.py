"""A collector for each principal: a thread that reads the cluster at a fixed rate with the principal's rights.

Pages show its last snapshot, so the number of requests to the brokers does not grow with the visitors and their pages.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from threading import Event, Lock, Thread
from typing import Any, Final, NamedTuple

from barnabas_console.app.certificates import Certificates
from barnabas_console.app.sessions import Principal
from barnabas_console.kafka.reading import read_cluster_once
from barnabas_console.model.snapshot import Snapshot
from barnabas_kafka.asking import Asking
from barnabas_kafka.connection import ClusterUnreachable
from barnabas_kafka.security import Credentials

log = logging.getLogger(__name__)

COLLECTORS_MAX: Final = 20
IDLE_S: Final = 60.0
"""The seconds after the last page of a principal when its collector ends."""
BUSY_SHARE: Final = 4.0
"""The pause after a round, as a multiple of the round's time, so that a large cluster is not read all the time."""
PAUSE_S_MAX: Final = 30.0
"""The longest such pause: a round may be long because a broker is down, which the pages should show soon."""
FIRST_WAIT_S: Final = 15.0
STALE_S: Final = 60.0
"""The age of a snapshot at which it is no longer shown if the cluster cannot be read, as for a user that is gone."""
LOGIN_S: Final = 60.0
"""The seconds after which a collector logs in again, because a connection outlives the password of its user."""
REFUSED: Final = "Authentication"
"""The word in the names of Kafka's errors about credentials that brokers refuse."""

Connect = Callable[[Credentials], Any]


class CollectorSettings(NamedTuple):
    """The settings of all collectors: how they connect, their clocks, and the pause in seconds.

    `steady_s` never goes back; `now` has a zone.
    """

    connect: Connect
    steady_s: Callable[[], float]
    interval_s: float
    now: Callable[[], datetime]


class TooManyPrincipals(Exception):
    """The error that COLLECTORS_MAX other principals look at the cluster now."""


@dataclass(frozen=True, slots=True)
class Sight:
    """The last snapshot, None before the first; and why later rounds failed, empty if the last one did not."""

    snapshot: Snapshot | None = None
    failure: str = ""


class Collector:
    """The collector of one principal. Its client also carries the requests of single pages."""

    def __init__(self, principal: Principal, settings: CollectorSettings) -> None:
        self.principal: Final = principal
        self.sight = Sight()
        self.first: Final = Event()
        """Set after the first round, whether it succeeded or not."""
        self.is_accepted = False
        """True if the brokers have accepted the credentials once."""
        self.is_refused = False
        """True if the brokers do not accept the credentials."""
        self._settings = settings
        self._used_s = settings.steady_s()
        self._stop = Event()
        self._again = Event()
        self._lock = Lock()
        self._client: Any = None
        self._login_s = 0.0
        """The time of the last login."""
        self._certificates = Certificates(principal.credentials, settings.steady_s, settings.now)
        self._thread = Thread(target=self._run, name=f"collector of {principal.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """True if the collector reads no more."""
        return self._stop.is_set()

    @property
    def age_s(self) -> float | None:
        """The seconds since the snapshot was read; None before the first."""
        found = self.sight.snapshot
        return None if found is None else self._settings.steady_s() - found.seen.at_s

    def use(self) -> None:
        """Count as used now."""
        self._used_s = self._settings.steady_s()

    def refresh(self) -> None:
        """Begin the next round soon, because the visitor has changed something."""
        self._again.set()

    def stop(self) -> None:
        """End after the request that is under way."""
        self._stop.set()
        self._again.set()

    def client(self) -> Any:
        """Return the connected client. Raises ClusterUnreachable if no broker answers; the call blocks until then."""
        with self._lock:
            if self._client is None:
                self._client = self._settings.connect(self.principal.credentials)
                self._login_s = self._settings.steady_s()
                self.is_accepted = True
            return self._client

    def _run(self) -> None:
        while not self._stop.is_set():
            begun_s = self._settings.steady_s()
            self._round()
            self.first.set()
            now_s = self._settings.steady_s()
            if now_s - self._used_s > IDLE_S or self.is_refused:
                self._stop.set()
            self._again.wait(0 if self.is_over else pause_s(self._settings.interval_s, now_s - begun_s))
            self._again.clear()
        self._disconnect()

    def _round(self) -> None:
        """Read the cluster once; a failure keeps a snapshot until it is stale, and the next round connects again."""
        try:
            self._log_in_again()
            seen = read_cluster_once(Asking(self.client()), self._settings.steady_s())
            found = self._certificates.of([each.address for each in seen.brokers])
            brokers = [each._replace(certificate=found.get(each.address)) for each in seen.brokers]
            self.sight = Sight(Snapshot(seen._replace(brokers=brokers), self.sight.snapshot))
        except ClusterUnreachable as error:
            # A wrong password may look like a broken connection; so does a broker that is down, which ends no session.
            self.is_refused = REFUSED in str(error) or not self.is_accepted
            self._failed(str(error))
        except Exception as error:  # A response that cannot be read must not leave pages without a word about it.
            log.exception("a round of requests for %s failed", self.principal.name)
            self._failed(f"{type(error).__name__}: {error}")

    def _log_in_again(self) -> None:
        """Try the credentials on another connection once in LOGIN_S. Raises ClusterUnreachable."""
        now_s = self._settings.steady_s()
        if self._client is not None and self.principal.credentials.authenticates and now_s - self._login_s >= LOGIN_S:
            self._settings.connect(self.principal.credentials).close()
            self._login_s = now_s

    def _failed(self, why: str) -> None:
        age_s = self.age_s
        is_stale = age_s is None or age_s > max(STALE_S, 2 * self._settings.interval_s)
        self.sight = Sight(None if is_stale else self.sight.snapshot, why)
        self._disconnect()

    def _disconnect(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # A failure to close has no effect on the next client.
                client.close()


def pause_s(interval_s: float, round_s: float) -> float:
    """Return the seconds between a round that took `round_s` and the next one."""
    return max(interval_s, min(BUSY_SHARE * round_s, PAUSE_S_MAX))


class Collectors:
    """The collectors of all principals, at most COLLECTORS_MAX."""

    def __init__(self, settings: CollectorSettings) -> None:
        self._settings = settings
        self._collectors: dict[str, Collector] = {}

    def of(self, principal: Principal) -> Collector:
        """Return the collector of a principal, which starts if none runs. Raises TooManyPrincipals."""
        self._forget_ended()
        found = self._collectors.get(principal.key)
        if found is None:
            if len(self._collectors) >= COLLECTORS_MAX:
                raise TooManyPrincipals
            found = self._collectors[principal.key] = Collector(principal, self._settings)
            found.start()
        found.use()
        return found

    def __len__(self) -> int:
        self._forget_ended()
        return len(self._collectors)

    def stop(self) -> None:
        """End all collectors."""
        for each in self._collectors.values():
            each.stop()

    def _forget_ended(self) -> None:
        self._collectors = {key: each for key, each in self._collectors.items() if not each.is_over}
