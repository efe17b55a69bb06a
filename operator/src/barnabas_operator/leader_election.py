"""Leader election between operators with a Lease of `coordination.k8s.io`, by the rules of client-go.

The clocks of different machines are never compared. To an observer, a lease has expired if it has not changed for
`leaseDurationSeconds` by the observer's own monotonic clock.
"""

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Self

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.planning.conditions import micro_time_text
from barnabas_operator.resources.kind import Key

Spec = Mapping[str, Any]

DURATION_S: Final = 14
"""The time without a renewal after which another operator may take a lease."""
RENEW_S: Final = 10.0
"""The time without a renewal after which the holder stops its work.

The time is shorter than `DURATION_S`, so that the holder stops before another operator can take the lease.
"""
RETRY_S: Final = 1.0
"""The time between two renewals by the holder, and between two reads by another operator.

With `DURATION_S` and this interval, another operator takes over within 15 s.
"""


class Sighting(NamedTuple):
    """The content of a lease, and the monotonic time at which this content was first seen."""

    spec: Spec
    seen_s: float


def sighting(spec: Spec, before: Sighting | None, now_s: float) -> Sighting:
    """Return the content of the lease and when it was first seen: now, or earlier if the content has not changed."""
    return before if before is not None and before.spec == spec else Sighting(spec, now_s)


def holder_of(spec: Spec) -> str:
    """Return the identity of the holder, or "" if nobody holds the lease."""
    return spec.get("holderIdentity") or ""


def free_in_s(seen: Sighting, now_s: float) -> float:
    """Return the seconds until the lease expires unless it is renewed, or 0 if it is released or expired."""
    if not holder_of(seen.spec):
        return 0.0
    return max(0.0, seen.seen_s + float(seen.spec.get("leaseDurationSeconds", DURATION_S)) - now_s)


def taken(spec: Spec, identity: str, time_of_day: str) -> dict[str, Any]:
    """Return the lease spec with which `identity` takes or renews the lease; `time_of_day` is shown, never compared."""
    renewed = {"holderIdentity": identity, "leaseDurationSeconds": DURATION_S, "renewTime": time_of_day}
    if holder_of(spec) == identity:
        return renewed
    transitions = spec.get("leaseTransitions", 0) + bool(spec)
    return {**renewed, "acquireTime": time_of_day, "leaseTransitions": transitions}


def released(time_of_day: str) -> dict[str, Any]:
    """Return the merge patch of the spec with which a holder releases the lease, so that it can be taken at once."""
    return {"holderIdentity": None, "leaseDurationSeconds": 1, "renewTime": time_of_day}


class NotLeading(Exception):
    """The error that a write was not sent, because the lease is not held, or may expire before the write ends."""


class Leadership:
    """The leadership of one operator. Its methods may be called in any thread.

    `clock` is a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._acts_until_s = -math.inf
        self._ends_at_s = -math.inf
        self._under_way = 0
        self._lock = threading.Lock()

    @classmethod
    def without_others(cls) -> Self:
        """Return the leadership of a single operator, which is always the leader."""
        alone = cls(lambda: 0.0)
        alone._acts_until_s = alone._ends_at_s = math.inf
        return alone

    @property
    def is_held(self) -> bool:
        """True if this operator may begin writes: it acquired or renewed the lease within the last RENEW_S seconds."""
        return self._clock() < self._acts_until_s

    @property
    def acts_for_s(self) -> float:
        """The seconds left in which writes may begin if the lease is not renewed; negative if no write may begin."""
        return self._acts_until_s - self._clock()

    @property
    def ended(self) -> bool:
        """True if every write that has begun has ended, or the lease has expired."""
        with self._lock:
            return not self._under_way or self._clock() >= self._ends_at_s

    def renewed(self, asked_at_s: float) -> None:
        """Extend the leadership. Its time runs from `asked_at_s`, when the request for the lease was sent."""
        with self._lock:
            self._acts_until_s, self._ends_at_s = asked_at_s + RENEW_S, asked_at_s + DURATION_S

    def stop(self) -> None:
        """Forbid new writes until `renewed` is called."""
        with self._lock:
            self._acts_until_s = -math.inf

    @contextmanager
    def writing(self, needs_s: float = 0.0) -> Iterator[float]:
        """Begin a write of at most `needs_s`; yield the seconds until the lease expires, in which the write must end.

        Raises NotLeading if another operator is the leader, or the lease expires too soon.
        """
        with self._lock:
            left_s = self._ends_at_s - self._clock()
            if not self.is_held:
                raise NotLeading("another operator is the leader, or this operator could not renew its lease")
            if left_s < needs_s:
                raise NotLeading(f"the lease ends in {left_s:.1f} s, but the request may take {needs_s:.1f} s")
            self._under_way += 1
        try:
            yield left_s
        finally:
            with self._lock:
                self._under_way -= 1


ALONE: Final = Leadership.without_others()


OUTAGE_S_MIN: Final = 3.0
"""The shortest time without an answer that counts as an outage; shorter ones delay kube-proxy and CoreDNS little."""


class ApiOutages:
    """The outages of the API server. `clock` is a monotonic clock in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at_s: float | None = None
        self._ended_at_s = -math.inf

    @property
    def since_last_s(self) -> float:
        """The seconds since the last outage ended; infinite without an outage."""
        return self._clock() - self._ended_at_s

    def failed(self) -> None:
        """Note that the API server did not answer a request."""
        if self._began_at_s is None:
            self._began_at_s = self._clock()

    def answered(self) -> None:
        """Note that the API server answered a request; an outage ends."""
        began_at_s, self._began_at_s = self._began_at_s, None
        if began_at_s is not None and self._clock() - began_at_s >= OUTAGE_S_MIN:
            self._ended_at_s = self._clock()


NO_OUTAGES: Final = ApiOutages(lambda: 0.0)


log = logging.getLogger(__name__)

LEASE: Final = "Lease"
IDLE_POLL_S: Final = 0.05
READ_S: Final = RENEW_S / 2
"""The time limit in seconds for reading the lease, short enough for a second try within RENEW_S."""


class Election:
    """The election: `run` acquires the lease when it is free, and renews it.

    `on_change` is called when the operator becomes or ceases to be the leader. `api` must allow writes without the
    lease, so that the lease can be acquired. `clock` must be the clock that `leadership` uses.
    """

    def __init__(
        self,
        api: KubeApi,
        lease: Key,
        identity: str,
        leadership: Leadership,
        clock: LoopClock,
        on_change: Callable[[], None],
        outages: ApiOutages,
    ) -> None:
        self._api = api
        self._lease = lease
        self._identity = identity
        self._leadership = leadership
        self._clock = clock
        self._on_change = on_change
        self._outages = outages
        self._seen: Sighting | None = None
        self._acted = False
        self._logged_holder = ""

    async def run(self) -> None:
        """Acquire and renew the lease, until cancelled."""
        while True:
            await self._attempt()
            self._report_change()
            await self._clock.sleep(min(RETRY_S, self._next_s() or RETRY_S))

    def _next_s(self) -> float:
        """Return the seconds until this operator must stop writing, if it holds the lease.

        Otherwise return the seconds until the lease is free, or 0 if that is unknown.
        """
        if self._leadership.is_held:
            return self._leadership.acts_for_s
        return free_in_s(self._seen, self._clock.monotonic_s()) if self._seen is not None else 0.0

    async def resign(self) -> None:
        """Forbid new writes, wait for the end of those that have begun, and release the lease.

        `run` must have been cancelled. A lease that another operator has acquired meanwhile is left unchanged.
        """
        if not self._leadership.is_held:
            return
        self._leadership.stop()
        while not self._leadership.ended:
            await self._clock.sleep(IDLE_POLL_S)
        try:
            found = await self._api.get(LEASE, *self._lease)
            if found is not None and holder_of(found.get("spec") or {}) == self._identity:
                await self._write(found, released(micro_time_text(self._clock.now_ms())))
        except (KubeRefused, KubeUnreachable) as error:
            log.warning("the lease %s/%s could not be released, and will expire: %s", *self._lease, error)

    async def _attempt(self) -> None:
        """Try once to acquire or renew the lease; log any failure. A leader stops trying when its leadership ends."""
        acts_for_s = self._leadership.acts_for_s
        try:
            async with self._clock.timeout(acts_for_s if acts_for_s > 0 else RENEW_S):
                await self._take_or_renew()
            self._outages.answered()
        except (KubeRefused, KubeUnreachable, TimeoutError) as error:
            if not isinstance(error, KubeRefused):
                self._outages.failed()
            log.warning(
                "the lease %s/%s could not be acquired or renewed: %s", *self._lease, str(error) or "no answer in time"
            )
        except Exception:  # The loop must survive every error, because nothing restarts it.
            log.exception("the lease %s/%s could not be acquired or renewed", *self._lease)

    async def _take_or_renew(self) -> None:
        """Renew the lease, or acquire it if it is free; stop leading if another operator holds it."""
        async with self._clock.timeout(READ_S):
            found = await self._api.get(LEASE, *self._lease)
        spec = (found or {}).get("spec") or {}
        self._seen = sighting(spec, self._seen, self._clock.monotonic_s())
        if holder_of(spec) != self._identity:
            self._leadership.stop()
            if free_in_s(self._seen, self._clock.monotonic_s()):
                return
        asked_at_s = self._clock.monotonic_s()
        if await self._write(found, taken(spec, self._identity, micro_time_text(self._clock.now_ms()))):
            self._leadership.renewed(asked_at_s)

    async def _write(self, found: dict[str, Any] | None, spec: dict[str, Any]) -> bool:
        """Write the lease; return False if another operator has changed the lease meanwhile."""
        namespace, name = self._lease
        try:
            if found is None:
                meta = {"namespace": namespace, "name": name}
                body = {"apiVersion": "coordination.k8s.io/v1", "kind": LEASE, "metadata": meta, "spec": spec}
                return bool(await self._api.create(body))
            version = {"resourceVersion": found["metadata"]["resourceVersion"]}
            return await self._api.patch(LEASE, namespace, name, {"metadata": version, "spec": spec}) is not None
        except KubeRefused as error:
            if error.status != CONFLICT:
                raise
            return False

    def _report_change(self) -> None:
        """Log a change of the leader; call `on_change` if this operator became the leader or lost the lead."""
        acts, holder = self._leadership.is_held, holder_of(self._seen.spec) if self._seen is not None else ""
        if not acts and holder not in ("", self._identity, self._logged_holder):
            log.info("this operator stands by: %s is the leader and holds the lease %s/%s", holder, *self._lease)
            self._logged_holder = holder
        if acts == self._acted:
            return
        if acts:
            log.info("this operator, %s, is the leader and holds the lease %s/%s", self._identity, *self._lease)
        else:
            log.warning(
                "this operator is no longer the leader: the lease %s/%s was lost, or could not be renewed for %d s",
                *self._lease,
                RENEW_S,
            )
        self._acted, self._logged_holder = acts, ""
        self._on_change()
