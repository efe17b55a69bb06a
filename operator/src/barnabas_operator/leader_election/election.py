"""Leader election between operators by a Kubernetes Lease."""

import logging
from collections.abc import Callable
from typing import Any, Final

from barnabas_core.clock import LoopClock
from barnabas_operator.kube.api import CONFLICT, KubeApi, KubeRefused, KubeUnreachable
from barnabas_operator.leader_election.api_outages import ApiOutages
from barnabas_operator.leader_election.leadership import Leadership
from barnabas_operator.planning.lease import RENEW_S, RETRY_S, Sighting, free_in_s, holder_of, released, sighting, taken
from barnabas_operator.planning.time_text import micro_time_text
from barnabas_operator.resources.object_key import Key

log = logging.getLogger(__name__)

LEASE: Final = "Lease"
IDLE_POLL_S: Final = 0.05
LOOK_S: Final = RENEW_S / 2
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
        async with self._clock.timeout(LOOK_S):
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
