"""The membership of this broker in the cluster: its lease, its registration, and its attempts to become controller.

A broker is alive while it renews its lease. The token of the lease is the broker epoch, which distinguishes this
incarnation from earlier ones (KIP-903). The controller is the broker that holds the controller lease.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Final, Protocol
from uuid import UUID

import msgspec

from barnabas_broker.metadata.documents import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    MalformedDocument,
    broker_key,
    decode_if_readable,
    encode,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import (
    NEW_LEVELS,
    BrokerRegistration,
    ClusterDocument,
    ControllerDocument,
    FeaturesDocument,
    ProducerIdsDocument,
)
from barnabas_broker.metadata.store.metadata_store import (
    ABSENT,
    Lease,
    LeaseLost,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
)
from barnabas_core import kafka_uuid
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_core.config.listeners import Endpoint
from barnabas_core.errors import ApiError, ErrorCode


def may_lack_records(previous: BrokerRegistration, registration: BrokerRegistration, was_clean: bool) -> bool:
    """True if a restarted broker may have lost records that its previous incarnation acknowledged (KIP-966).

    The result is False only if:
    - all log directories are available;
    - the shutdown was clean, or the machine has not rebooted since the last use of any log directory, so that the page
      cache still has all written data;
    - no log was truncated after a failed sync (`registration.may_lack_records`);
    - the controller has processed the losses of earlier incarnations (`previous.may_lack_records`).

    `log_ends` shows which partitions lack records.
    """
    present = set(registration.directory_ids)
    has_all_dirs = set(previous.directory_ids) <= present
    ran_on = machine_ran_on(previous, registration.boot_id) and not present & cut_dirs(previous, registration.boot_id)
    known = previous.may_lack_records or registration.may_lack_records
    return known or not (was_clean or ran_on) or not has_all_dirs


def machine_ran_on(previous: BrokerRegistration, boot_id: str) -> bool:
    """True if the machine has not rebooted since the previous incarnation started; `boot_id` is the current boot id."""
    return previous.boot_id != "" and previous.boot_id == boot_id


def cut_dirs(previous: BrokerRegistration, boot_id: str) -> frozenset[UUID]:
    """Return the log directories that the previous incarnation could not use, and that were in use before a reboot."""
    return frozenset(each for each, used_in in previous.away_since.items() if used_in != boot_id or not used_in)


def away_since(previous: BrokerRegistration, registration: BrokerRegistration) -> dict[UUID, str]:
    """Return the unavailable log directories of a restarted broker, each with the machine's boot id at its last use."""
    away = [each for each in remembered_dirs(previous, registration) if each not in registration.directory_ids]
    return {each: previous.away_since.get(each, previous.boot_id) for each in away}


def remembered_dirs(previous: BrokerRegistration, registration: BrokerRegistration) -> tuple[UUID, ...]:
    """Return the ids of the new incarnation's log directories, including unavailable log directories."""
    if not registration.dirs_away:
        return registration.directory_ids
    return tuple(dict.fromkeys((*registration.directory_ids, *previous.directory_ids)))


CONTROLLER_LEASE: Final = "controller"
BROKER_LEASES: Final = "broker-"
NO_EPOCH: Final = -1

log = logging.getLogger(__name__)


async def ensure_cluster_id(store: MetadataStore, random: Random, of_log_dirs: str = "", wanted: str = "") -> str:
    """Return the cluster id in the store; if the store has none, first store a cluster id and the feature levels.

    The cluster id to store is that of the log dirs (`of_log_dirs`). If the log dirs have none, the `wanted` id or a
    random one is stored, and also the first producer id. Raises StoreUnavailable, and MalformedDocument if the stored
    cluster id is unreadable and no log dir has one.
    """
    while True:
        found = await store.get(CLUSTER_KEY)
        known = None if found is None else decode_if_readable(CLUSTER_KEY, found.value)
        if isinstance(known, ClusterDocument):
            return known.cluster_id
        if found is not None and not of_log_dirs:
            raise MalformedDocument(
                f"the key `{CLUSTER_KEY}` of the metadata store cannot be read: {found.value[:100]!r}; set the key to "
                '{"cluster_id": "..."}, with the cluster.id from the meta.properties of another broker'
            )
        made = ClusterDocument(of_log_dirs or wanted or kafka_uuid.to_text(kafka_uuid.random_uuid(random.getrandbits)))
        try:
            await store.put(CLUSTER_KEY, encode(made), ABSENT if found is None else found.version)
            # A cluster with an id in a log dir is not new: its metadata store was lost, and its earlier producer ids
            # must not be allocated again.
            if not of_log_dirs:
                await store.put(PRODUCER_IDS_KEY, encode(ProducerIdsDocument(0)), ABSENT)
            await store.put(FEATURES_KEY, encode(FeaturesDocument(levels=dict(NEW_LEVELS))), ABSENT)
        except VersionConflict:
            continue


class ReportLogEnds(Protocol):
    """The function that reports the log ends before the broker registers: `log_ends.LogEnds.begin_incarnation`."""

    async def __call__(self, broker_epoch: int, *, undealt_epoch: int | None) -> None:
        """Report the end offsets of this broker's logs to the controller, with the new broker epoch."""
        ...


async def _report_nothing(broker_epoch: int, *, undealt_epoch: int | None) -> None:
    """Report nothing, because a broker without logs has no log end offsets."""


def holder_of(registration: BrokerRegistration) -> str:
    """Return the name under which a process of a broker holds its leases."""
    return f"broker {registration.broker_id}, incarnation {registration.incarnation_id}"


class Membership:
    """The membership of a broker in the cluster.

    Leases are renewed every `heartbeat_ms`, and last `session_ms`. `registration` describes this incarnation; `join`
    sets its broker epoch and `may_lack_records`. `image` shows what the store has, perhaps late. `was_clean` is True if
    the previous incarnation ended with a clean shutdown. `report_log_ends` is called before the registration is
    written, so that a broker that sees the registration knows the log ends of this incarnation.
    """

    def __init__(
        self,
        store: MetadataStore,
        image: MetadataImage,
        registration: BrokerRegistration,
        heartbeat_ms: int,
        session_ms: int,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        *,
        was_clean: bool = False,
        report_log_ends: ReportLogEnds = _report_nothing,
    ) -> None:
        self._store = store
        self._image = image
        self._registration = registration
        self._written = msgspec.structs.replace(registration, broker_epoch=NO_EPOCH)
        """The registration that this broker last wrote; `may_lack_records` is cleared once the broker is admitted."""
        self._was_clean = was_clean
        self._report_log_ends = report_log_ends
        self._heartbeat_ms = heartbeat_ms
        self._session_ms = session_ms
        self._attempts = session_ms // heartbeat_ms + 2
        self._clock = clock
        self._sleep = sleep
        self._holder = holder_of(registration)
        self._lease: Lease | None = None
        self._controller_lease: Lease | None = None
        self._controller_expires_at_ms: int | None = None
        self._punctual_from_ms = 0
        self._has_left = False
        self._turns = asyncio.Lock()
        self.passes = 0
        """The number of iterations of the loop in `keep`, which renews the leases."""

    @property
    def registered_epoch(self) -> int:
        """The broker epoch with which this broker last registered, or NO_EPOCH."""
        return self._written.broker_epoch

    @property
    def is_controller(self) -> bool:
        """True if this broker believes that it holds the controller lease."""
        return self._controller_lease is not None

    def trusts_expiry(self, now_ms: int) -> bool:
        """True if the expired lease of another broker means that the other broker is dead.

        If this broker renews its own lease late, the store or the machine probably hung, and other brokers may be late
        for the same reason. The result is then False for one session timeout.
        """
        is_late = self._lease is None or self._lease.expires_at_ms <= now_ms
        return not is_late and now_ms >= self._punctual_from_ms

    async def join(self) -> None:
        """Register this broker as fenced, and make it the controller if the controller lease is free.

        Waits while an earlier incarnation may still hold the broker's lease. Raises
        ApiError(DUPLICATE_BROKER_REGISTRATION) if another process goes on holding the lease.
        """
        name = f"{BROKER_LEASES}{self._registration.broker_id}"
        for _ in range(self._attempts):
            self._lease = await self._store.acquire_lease(name, self._holder, self._session_ms)
            if self._lease is not None:
                await self._register(self._lease.token)
                await self._hold_control()
                return
            await self._sleep(self._heartbeat_ms / 1000)
        message = (
            f"another process runs as broker {self._registration.broker_id}; every broker needs a different node.id"
        )
        raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)

    async def admitted(self) -> None:
        """Wait until the controller has unfenced this incarnation; meanwhile `keep` must run to renew the lease."""
        lease = self._lease
        assert lease is not None, "`join` must be called before `admitted`"

        def is_admitted() -> bool:
            found = self._image.brokers.get(self._registration.broker_id)
            return found is not None and found.broker_epoch >= lease.token and not found.fenced

        await self._image.until(is_admitted)
        self._written = msgspec.structs.replace(self._written, may_lack_records=False)

    async def keep(self) -> None:
        """Renew the leases until `leave` is called.

        If the store does not answer, try again at the next renewal. Raises ApiError(DUPLICATE_BROKER_REGISTRATION) if
        this broker has lost its lease, and another process goes on holding the lease.
        """
        while True:
            self.passes += 1
            await self._sleep(self._pause_s())
            async with self._turns:
                if self._has_left:
                    return
                try:
                    await self._renew()
                    if self.is_controller or await self._is_uncontrolled():
                        await self._hold_control()
                except StoreUnavailable as error:
                    log.warning("the leases cannot be renewed, because the metadata store does not answer: %s", error)

    async def renew(self) -> None:
        """Renew this broker's lease before it is due. Raises StoreUnavailable.

        `keep` deals with a lease that is late or lost.
        """
        async with self._turns:
            lease = self._lease
            if lease is not None and lease.expires_at_ms > monotonic_ms(self._clock):
                with suppress(LeaseLost):
                    self._lease = await self._store.renew_lease(lease)

    async def try_for_controller(self) -> None:
        """Take the controller lease at once if it is free; renew it if this broker has it. Raises StoreUnavailable."""
        async with self._turns:
            if self._lease is not None:
                await self._hold_control()

    async def leave(self) -> None:
        """Fence this broker and release its leases, so that other brokers need not wait until the leases expire."""
        async with self._turns:
            lease, controller_lease = self._lease, self._controller_lease
            self._has_left = True
            self._lease = self._controller_lease = None
            try:
                if controller_lease is not None:
                    await self._store.release_lease(controller_lease)
                if lease is not None:
                    await self._amend(lease.token, fenced=True)
                    await self._store.release_lease(lease)
            except StoreUnavailable as error:
                log.warning("the leases stay until they expire, because the metadata store does not answer: %s", error)

    def _pause_s(self) -> float:
        """Return the seconds until the next heartbeat, or until the controller lease expires if that is earlier."""
        if self._controller_expires_at_ms is None:
            return self._heartbeat_ms / 1000
        until_s = (self._controller_expires_at_ms - monotonic_ms(self._clock)) / 1000
        return min(self._heartbeat_ms / 1000, until_s) if until_s > 0 else self._heartbeat_ms / 1000

    async def _register(self, broker_epoch: int) -> None:
        """Report the log ends, then overwrite the registration in the store; the caller must hold the broker's lease.

        The new registration says whether the broker may have lost records since the earlier registration was written.
        """
        key = broker_key(self._registration.broker_id)
        found = await self._store.get(key)
        previous = decode_if_readable(key, found.value) if found is not None else None
        registration = msgspec.structs.replace(self._registration, fenced=True, broker_epoch=broker_epoch)
        undealt_epoch = None
        if isinstance(previous, BrokerRegistration):
            undealt_epoch = previous.broker_epoch if previous.may_lack_records else None
            lacks = may_lack_records(previous, registration, self._was_clean)
            ids, since = remembered_dirs(previous, registration), away_since(previous, registration)
            registration = msgspec.structs.replace(
                registration, may_lack_records=lacks, directory_ids=ids, away_since=since
            )
        else:  # The broker is new, or its earlier registration cannot be read.
            registration = msgspec.structs.replace(registration, may_lack_records=not self._was_clean)
        await self._report_log_ends(broker_epoch, undealt_epoch=undealt_epoch)
        await self._store.put(key, encode(registration))
        self._written = registration

    async def _register_if_put_back(self) -> None:
        """Write the registration again if the store was put back to an older copy, which has an earlier one or none.

        Nobody else writes it while this broker holds its lease. The image may only be late, so the store is read.
        """
        written, key = self._written, broker_key(self._written.broker_id)
        if self._image.registered_epoch(written.broker_id) == written.broker_epoch:
            return
        found = await self._store.get(key)
        known = decode_if_readable(key, found.value) if found is not None else None
        if isinstance(known, BrokerRegistration) and known.broker_epoch == written.broker_epoch:
            return
        log.warning("broker %d registers again, because the metadata store was put back", written.broker_id)
        await self._report_log_ends(written.broker_epoch, undealt_epoch=None)
        await self._store.put(key, encode(written))

    async def move(self, rack: str | None, listeners: tuple[Endpoint, ...]) -> None:
        """Register a new rack and new listeners. If this process ever registers again, the new values are used, too.

        Raises StoreUnavailable.
        """
        async with self._turns:
            self._registration = msgspec.structs.replace(self._registration, rack=rack, listeners=listeners)
            self._written = msgspec.structs.replace(self._written, rack=rack, listeners=listeners)
            if self._lease is not None:
                await self._amend(self._lease.token, rack=rack, listeners=listeners)

    async def _amend(self, broker_epoch: int, **fields: object) -> None:
        """Change the registration of this incarnation, unless another incarnation has registered."""
        key = broker_key(self._registration.broker_id)
        while True:
            found = await self._store.get(key)
            known = decode_if_readable(key, found.value) if found is not None else None
            if found is None or not isinstance(known, BrokerRegistration) or known.broker_epoch != broker_epoch:
                return
            try:
                await self._store.put(key, encode(msgspec.structs.replace(known, **fields)), found.version)
                return
            except VersionConflict:
                continue

    async def _renew(self) -> None:
        lease = self._lease
        # The token differs from the registered epoch if an earlier attempt to join acquired a new lease, but did not
        # write the registration.
        if lease is None or lease.token != self.registered_epoch:
            await self.join()
            return
        if lease.expires_at_ms <= monotonic_ms(self._clock):
            self._punctual_from_ms = monotonic_ms(self._clock) + self._session_ms
        try:
            self._lease = await self._store.renew_lease(lease)
        except LeaseLost:
            log.warning("broker %d has lost its lease, and registers again", self._registration.broker_id)
            self._was_clean = True  # The process never stopped, so no acknowledged record is lost.
            self._registration = msgspec.structs.replace(self._registration, may_lack_records=False)
            await self.join()
        else:
            await self._register_if_put_back()

    async def _is_uncontrolled(self) -> bool:
        """True if the controller lease may be free, according to the last known leases."""
        followed = await self._store.followed_leases(CONTROLLER_LEASE)
        expires_at_ms = min((lease.expires_at_ms for lease in followed), default=0)
        is_held = expires_at_ms > monotonic_ms(self._clock)
        self._controller_expires_at_ms = expires_at_ms if is_held else None
        return not is_held

    async def _hold_control(self) -> None:
        """Renew the controller lease; or, if it is free, acquire it and store that this broker is the controller."""
        held = self._controller_lease
        try:
            if held is not None:
                self._controller_lease = await self._store.renew_lease(held)
                if self._image.controller_epoch != held.token:  # The store may have been put back to an older copy.
                    await self._announce(held)
                return
        except LeaseLost:
            log.warning("broker %d is no longer the controller", self._registration.broker_id)
        lease = await self._store.acquire_lease(CONTROLLER_LEASE, self._holder, self._session_ms)
        self._controller_lease = lease  # Set first: listeners read it as soon as the controller document is written.
        try:
            if lease is not None:
                await self._announce(lease)
        except StoreUnavailable:
            self._controller_lease = None
            raise
        if lease is not None:
            self._controller_expires_at_ms = None
        else:
            await self._is_uncontrolled()

    async def _announce(self, lease: Lease) -> None:
        """Store that this broker is the controller, unless the stored controller has a higher lease token."""
        found = await self._store.get(CONTROLLER_KEY)
        known = decode_if_readable(CONTROLLER_KEY, found.value) if found is not None else None
        document = ControllerDocument(self._registration.broker_id, lease.token)
        # With the same token, the stored fields are kept: a newer version of this broker may have added fields.
        if isinstance(known, ControllerDocument) and known.epoch == lease.token:
            document = msgspec.structs.replace(known, broker_id=document.broker_id)
        if isinstance(known, ControllerDocument) and (known.epoch > lease.token or known == document):
            return
        try:
            await self._store.put(CONTROLLER_KEY, encode(document), found.version if found is not None else ABSENT)
        except VersionConflict:
            log.info("another broker has become the controller")
