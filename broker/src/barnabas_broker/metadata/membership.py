"""This broker's place in the cluster: its lease, its registration, and its try for the controller's lease.

A broker is alive while it renews its lease; its incarnation id tells this life of it from the one before (KIP-903).
One broker at a time holds the controller's lease.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import msgspec

from barnabas_broker.metadata.documents import (
    CLUSTER_KEY,
    CONTROLLER_KEY,
    MalformedDocument,
    broker_key,
    decode,
    encode,
)
from barnabas_broker.metadata.model import BrokerRegistration, ClusterDocument, ControllerDocument
from barnabas_broker.metadata.store import (
    ABSENT,
    Lease,
    LeaseLost,
    MetadataStore,
    StoreUnavailable,
    VersionConflict,
)
from barnabas_core import kafka_uuid
from barnabas_core.errors import ApiError, ErrorCode

CONTROLLER_LEASE: Final = "controller"

log = logging.getLogger(__name__)


async def ensure_cluster_id(store: MetadataStore, random: Random) -> str:
    """The cluster's id, made by whoever comes first. Raises StoreUnavailable."""
    while True:
        found = await store.get(CLUSTER_KEY)
        if found is not None:
            document = decode(CLUSTER_KEY, found.value)
            if not isinstance(document, ClusterDocument):
                raise MalformedDocument(f"{CLUSTER_KEY}: has no cluster_id")
            return document.cluster_id
        made = ClusterDocument(kafka_uuid.to_text(kafka_uuid.random_uuid(random.getrandbits)))
        try:
            await store.put(CLUSTER_KEY, encode(made), ABSENT)
        except VersionConflict:
            continue


class Membership:
    """`sleep` waits for seconds; `heartbeat_ms` is how often leases are renewed, `session_ms` how long they last."""

    def __init__(
        self,
        store: MetadataStore,
        registration: BrokerRegistration,
        heartbeat_ms: int,
        session_ms: int,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._store = store
        self._registration = registration
        self._heartbeat_s = heartbeat_ms / 1000
        self._session_ms = session_ms
        self._attempts = session_ms // heartbeat_ms + 2
        self._sleep = sleep
        self._holder = f"broker {registration.broker_id}, incarnation {registration.incarnation_id}"
        self._lease: Lease | None = None
        self._controller_lease: Lease | None = None
        self._turns = asyncio.Lock()

    async def join(self) -> None:
        """Registers this broker, and makes it the controller if there is none.

        Waits as long as a life of it that was cut short may still hold the lease. Raises
        ApiError(DUPLICATE_BROKER_REGISTRATION) where another process goes on being this broker.
        """
        name = f"broker-{self._registration.broker_id}"
        for _ in range(self._attempts):
            self._lease = await self._store.acquire_lease(name, self._holder, self._session_ms)
            if self._lease is not None:
                await self._register(self._registration)
                await self._try_for_controller()
                return
            await self._sleep(self._heartbeat_s)
        message = f"another process is broker {self._registration.broker_id}; each broker's node.id must be its own"
        raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message)

    async def keep(self) -> None:
        """Renews until `leave`. While the store is away everything stays as it is. Raises as `join` does."""
        while True:
            await self._sleep(self._heartbeat_s)
            async with self._turns:
                if self._lease is None:
                    return
                try:
                    await self._renew(self._lease)
                    await self._try_for_controller()
                except StoreUnavailable as error:
                    log.warning("the metadata store does not answer, leases are not renewed: %s", error)

    async def leave(self) -> None:
        """Gives everything back, so that others need not wait for leases to expire."""
        async with self._turns:
            held = [lease for lease in (self._controller_lease, self._lease) if lease is not None]
            self._lease = self._controller_lease = None
            try:
                if held:
                    await self._register(msgspec.structs.replace(self._registration, fenced=True))
                for lease in held:
                    await self._store.release_lease(lease)
            except StoreUnavailable as error:
                log.warning("the metadata store does not answer, leases run out by themselves: %s", error)

    async def _register(self, registration: BrokerRegistration) -> None:
        await self._store.put(broker_key(registration.broker_id), encode(registration))

    async def _renew(self, lease: Lease) -> None:
        try:
            self._lease = await self._store.renew_lease(lease)
        except LeaseLost:
            log.warning("broker %d was taken for dead; it registers again", self._registration.broker_id)
            await self.join()

    async def _try_for_controller(self) -> None:
        """Renews the controller's lease, or takes it when nobody has it."""
        held = self._controller_lease
        try:
            if held is not None:
                self._controller_lease = await self._store.renew_lease(held)
                return
        except LeaseLost:
            log.warning("broker %d is the controller no longer", self._registration.broker_id)
        lease = await self._store.acquire_lease(CONTROLLER_LEASE, self._holder, self._session_ms)
        if lease is not None:
            await self._announce(lease)
        self._controller_lease = lease

    async def _announce(self, lease: Lease) -> None:
        """Tells all who is the controller; a later one, whose token is higher, is not overwritten."""
        found = await self._store.get(CONTROLLER_KEY)
        known = decode(CONTROLLER_KEY, found.value) if found is not None else None
        if isinstance(known, ControllerDocument) and known.epoch > lease.token:
            return
        document = ControllerDocument(self._registration.broker_id, lease.token)
        try:
            await self._store.put(CONTROLLER_KEY, encode(document), found.version if found is not None else ABSENT)
        except VersionConflict:
            log.info("another broker became the controller in between")
