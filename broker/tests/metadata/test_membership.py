"""A broker's lease and registration, and the election of the controller."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from barnabas_broker.metadata.documents import CONTROLLER_KEY, broker_key, encode
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.membership import Membership
from barnabas_broker.metadata.model import BrokerRegistration, ControllerDocument
from barnabas_broker.metadata.store.metadata_store import Document, StoreUnavailable, Write
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_core.clock import monotonic_ms
from barnabas_core.errors import ApiError, ErrorCode
from harness.manual_clock import ManualClock

HEARTBEAT_MS, SESSION_MS = 1000, 3000


class Stopped(Exception):
    """An exception that ends a broker's heartbeats."""


class Machine:
    """Processes on one store and one clock; their sleep advances the clock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.stores: list[SqliteStore] = []
        self.random = random.Random(1)

    async def broker(self, broker_id: int, heartbeats: int = 0) -> Membership:
        """Return a new incarnation of a broker that stops after so many heartbeats."""
        store = await SqliteStore.open(self.path, self.clock)
        self.stores.append(store)
        left = heartbeats

        async def sleep(seconds: float) -> None:
            nonlocal left
            self.clock.passed_ms += int(seconds * 1000)
            left -= 1
            if left == -1:
                raise Stopped

        registration = BrokerRegistration(broker_id, UUID(int=self.random.getrandbits(128)), ())
        return Membership(store, MetadataImage(), registration, HEARTBEAT_MS, SESSION_MS, self.clock, sleep)

    async def image(self) -> MetadataImage:
        image = MetadataImage()
        await image_feed.load(image, self.stores[0])
        return image


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    machine = Machine(tmp_path / "metadata.sqlite")
    yield machine
    for store in machine.stores:
        await store.close()


async def test_the_first_broker_is_registered_and_becomes_the_controller(machine: Machine) -> None:
    for broker_id in (3, 4):
        await (await machine.broker(broker_id)).join()
    image = await machine.image()
    assert [(each.broker_id, each.fenced, each.broker_epoch) for each in image.brokers.values()] == [
        (3, True, 1),
        (4, True, 1),
    ]
    assert image.controller_id == 3


async def test_two_processes_cannot_be_the_same_broker(machine: Machine) -> None:
    first = await machine.broker(0)
    await first.join()
    machine.clock.passed_ms += 10  # The lease of the first broker is still valid.
    second = await machine.broker(0, heartbeats=1)
    with pytest.raises(Stopped):
        await second.join()
    assert (await machine.stores[0].leases("broker-0"))[0].token == 1


async def test_a_duplicate_broker_is_refused_with_the_reason(machine: Machine) -> None:
    first = await machine.broker(0)
    await first.join()
    store = machine.stores[0]
    (lease,) = await store.leases("broker-0")

    async def sleep_while_the_first_renews(seconds: float) -> None:
        machine.clock.passed_ms += int(seconds * 1000)
        await store.renew_lease(lease)

    registration = BrokerRegistration(0, UUID(int=9), ())
    other = await SqliteStore.open(machine.path, machine.clock)
    machine.stores.append(other)
    second = Membership(
        other, MetadataImage(), registration, HEARTBEAT_MS, SESSION_MS, machine.clock, sleep_while_the_first_renews
    )
    with pytest.raises(
        ApiError, match=r"another process runs as broker 0; every broker needs a different node\.id"
    ) as refused:
        await second.join()
    assert refused.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_restarted_broker_waits_until_its_old_lease_expires(machine: Machine) -> None:
    await (await machine.broker(0)).join()
    again = await machine.broker(0, heartbeats=10)
    began_ms = monotonic_ms(machine.clock)
    await again.join()
    assert monotonic_ms(machine.clock) == began_ms + SESSION_MS
    image = await machine.image()
    assert (image.brokers[0].broker_epoch, image.controller_id) == (2, 0)


async def test_another_broker_becomes_the_controller_when_the_first_sends_no_heartbeats(machine: Machine) -> None:
    first, second = await machine.broker(0), await machine.broker(1, heartbeats=4)
    await first.join()
    await second.join()
    with pytest.raises(Stopped):
        await second.keep()
    assert (await machine.image()).controller_id == 1


async def test_a_broker_that_shuts_down_is_fenced_and_releases_its_leases(machine: Machine) -> None:
    first = await machine.broker(0)
    await first.join()
    await first.leave()
    image = await machine.image()
    assert list(image.brokers) == [0]
    assert image.live_brokers() == []
    assert await machine.stores[0].leases("") == []
    await (await machine.broker(0)).join()
    assert (await machine.image()).brokers[0].broker_epoch == 2


async def test_a_broker_that_lost_its_lease_registers_again_with_a_new_epoch(machine: Machine) -> None:
    broker = await machine.broker(0, heartbeats=9)
    await broker.join()
    store = machine.stores[0]
    machine.clock.passed_ms += SESSION_MS
    stolen = await store.acquire_lease("broker-0", "somebody else", SESSION_MS)
    assert stolen is not None
    with pytest.raises(Stopped):
        await broker.keep()
    (lease,) = await store.leases("broker-0")
    assert lease.token > stolen.token
    registration = (await machine.image()).brokers[0]
    assert (registration.broker_epoch, registration.fenced) == (lease.token, True)


async def test_heartbeats_end_when_a_broker_shuts_down(machine: Machine) -> None:
    broker = await machine.broker(0, heartbeats=99)
    await broker.join()
    await broker.leave()
    await broker.keep()
    assert (await machine.image()).live_brokers() == []


async def test_a_broker_keeps_sending_heartbeats_while_the_store_is_unavailable(machine: Machine) -> None:
    broker = await machine.broker(0, heartbeats=3)
    await broker.join()
    await machine.stores[0].close()
    with pytest.raises(Stopped):
        await broker.keep()
    await broker.leave()


@pytest.mark.parametrize("before", [True, False], ids=["an earlier registration", "no registration"])
async def test_a_broker_registers_again_if_the_store_was_put_back_to_an_older_copy(
    machine: Machine, before: bool
) -> None:
    earlier = await machine.broker(0)
    await earlier.join()
    older = await machine.stores[0].get(broker_key(0))
    assert older is not None
    await earlier.leave()
    broker = await machine.broker(0, heartbeats=1)
    await broker.join()
    written = (await machine.image()).brokers[0]
    await machine.stores[0].write([Write(broker_key(0), older.value if before else None)])
    with pytest.raises(Stopped):
        await broker.keep()
    assert (await machine.image()).brokers[0] == written
    assert written.broker_epoch == broker.registered_epoch == 2


@pytest.mark.parametrize("is_admitted", [True, False])
async def test_records_count_as_lacking_in_a_store_that_was_put_back_only_until_the_broker_is_admitted(
    machine: Machine, is_admitted: bool
) -> None:
    store, image = await SqliteStore.open(machine.path, machine.clock), MetadataImage()
    machine.stores.append(store)

    async def sleep(_: float) -> None:
        if broker.passes > 1:
            raise Stopped

    older = BrokerRegistration(0, UUID(int=1), (), boot_id="boot")
    lacking = BrokerRegistration(0, UUID(int=2), (), boot_id="boot", may_lack_records=True)
    broker = Membership(store, image, lacking, HEARTBEAT_MS, SESSION_MS, machine.clock, sleep)
    registration = await registered(machine, broker)
    if is_admitted:
        await store.put(
            broker_key(0), encode(msgspec.structs.replace(registration, fenced=False, may_lack_records=False))
        )
        await image_feed.load(image, store)
        await broker.admitted()
    await store.put(broker_key(0), encode(older))
    await image_feed.load(image, store)
    with pytest.raises(Stopped):
        await broker.keep()
    again = (await machine.image()).brokers[0]
    assert (again.broker_epoch, again.may_lack_records) == (1, not is_admitted)


async def test_the_controller_stores_again_that_it_is_the_controller_after_the_store_was_put_back(
    machine: Machine,
) -> None:
    broker = await machine.broker(0, heartbeats=1)
    await broker.join()
    await machine.stores[0].put(CONTROLLER_KEY, encode(ControllerDocument(7, 0)))
    with pytest.raises(Stopped):
        await broker.keep()
    assert (await machine.image()).controller_id == 0


async def test_a_broker_reads_no_registration_while_its_image_shows_the_newest(machine: Machine) -> None:
    """A read for each broker and heartbeat would load the API server of Kubernetes."""
    store, image = await CountingStore.open(machine.path, machine.clock), MetadataImage()
    machine.stores.append(store)

    async def sleep(_: float) -> None:
        if store.reads:
            await image_feed.load(image, store)
            store.reads, broker.passes = 0, 1
        elif broker.passes > 3:
            raise Stopped

    registration = BrokerRegistration(0, UUID(int=9), ())
    broker = Membership(store, image, registration, HEARTBEAT_MS, SESSION_MS, machine.clock, sleep)
    await broker.join()
    with pytest.raises(Stopped):
        await broker.keep()


class CountingStore(SqliteStore):
    """A store that counts reads of single documents."""

    reads = 0

    async def get(self, key: str) -> Document | None:
        self.reads += 1
        return await super().get(key)


async def registered(machine: Machine, membership: Membership) -> BrokerRegistration:
    await membership.join()
    return (await machine.image()).brokers[0]


@pytest.mark.parametrize("was_clean", [False, True])
async def test_an_incarnation_without_a_previous_registration_may_lack_records_unless_it_was_clean(
    machine: Machine, was_clean: bool
) -> None:
    """A previous registration may have been lost, so nothing can be compared."""
    machine.stores.append(await SqliteStore.open(machine.path, machine.clock))
    incarnation = Membership(
        machine.stores[0],
        MetadataImage(),
        BrokerRegistration(0, UUID(int=5), (), boot_id="first"),
        HEARTBEAT_MS,
        SESSION_MS,
        machine.clock,
        asyncio.sleep,
        was_clean=was_clean,
    )
    assert (await registered(machine, incarnation)).may_lack_records is not was_clean


async def test_an_incarnation_may_lack_records_after_an_unclean_reboot_or_unhandled_loss(machine: Machine) -> None:
    def incarnation(boot_id: str, *, was_clean: bool = False) -> Membership:
        registration = BrokerRegistration(
            0, UUID(int=machine.random.getrandbits(128)), (), directory_ids=(UUID(int=1),), boot_id=boot_id
        )
        return Membership(
            machine.stores[0],
            MetadataImage(),
            registration,
            HEARTBEAT_MS,
            SESSION_MS,
            machine.clock,
            asyncio.sleep,
            was_clean=was_clean,
        )

    machine.stores.append(await SqliteStore.open(machine.path, machine.clock))
    assert not (await registered(machine, incarnation("first", was_clean=True))).may_lack_records
    for boot_id, was_clean, lacks in [("first", False, False), ("second", True, False), ("third", False, True)]:
        machine.clock.passed_ms += SESSION_MS
        assert (await registered(machine, incarnation(boot_id, was_clean=was_clean))).may_lack_records is lacks
    machine.clock.passed_ms += SESSION_MS
    again = await registered(machine, incarnation("third", was_clean=True))
    assert again.may_lack_records, "the loss of the previous incarnation was not handled"
    assert again.broker_epoch == 5


async def test_records_lost_by_a_failed_sync_are_lacking_until_handled_and_not_afterwards(
    machine: Machine,
) -> None:
    store = await SqliteStore.open(machine.path, machine.clock)
    machine.stores.append(store)

    async def sleep(seconds: float) -> None:
        machine.clock.passed_ms += int(seconds * 1000)
        if (await machine.image()).brokers[0].broker_epoch > 1:
            raise Stopped

    for boot_id, lacks in (("boot", True), ("boot", False)):
        registration = BrokerRegistration(0, UUID(int=1), (), boot_id=boot_id, may_lack_records=lacks)
        incarnation = Membership(store, MetadataImage(), registration, HEARTBEAT_MS, SESSION_MS, machine.clock, sleep)
        found = await registered(machine, incarnation)
        assert found.may_lack_records is lacks
        await store.put(broker_key(0), encode(msgspec.structs.replace(found, may_lack_records=False)))
        if lacks:
            (lease,) = await store.leases("broker-0")
            await store.release_lease(lease)
            with pytest.raises(Stopped):
                await incarnation.keep()
            again = (await machine.image()).brokers[0]
            assert (again.broker_epoch, again.may_lack_records) == (2, False)
        machine.clock.passed_ms += SESSION_MS


async def test_a_log_dir_offline_during_a_reboot_may_lack_records_on_return(machine: Machine) -> None:
    first, second = UUID(int=1), UUID(int=2)

    async def incarnation(boot_id: str, *dirs: UUID) -> BrokerRegistration:
        machine.clock.passed_ms += SESSION_MS
        incarnation = UUID(int=machine.random.getrandbits(128))
        away = len(dirs) < 2
        registration = BrokerRegistration(0, incarnation, (), directory_ids=dirs, boot_id=boot_id, dirs_away=away)
        store = machine.stores[0]
        joining = Membership(
            store, MetadataImage(), registration, HEARTBEAT_MS, SESSION_MS, machine.clock, asyncio.sleep
        )
        found = await registered(machine, joining)
        dealt_with = msgspec.structs.replace(found, may_lack_records=False)
        await store.put(broker_key(0), encode(dealt_with))
        return found

    machine.stores.append(await SqliteStore.open(machine.path, machine.clock))
    await incarnation("boot 1", first, second)
    assert (await incarnation("boot 2", first)).away_since == {second: "boot 1"}
    assert (await incarnation("boot 2", first)).away_since == {second: "boot 1"}
    back = await incarnation("boot 2", first, second)
    assert back.may_lack_records, "the machine was rebooted since the last use of the dir"
    assert back.away_since == {}
    assert (await incarnation("boot 2", first)).away_since == {second: "boot 2"}
    assert not (await incarnation("boot 2", first, second)).may_lack_records


@pytest.mark.parametrize(
    ("heartbeats", "trusts"), [(1, False), (SESSION_MS // HEARTBEAT_MS - 1, False), (SESSION_MS // HEARTBEAT_MS, True)]
)
async def test_a_broker_trusts_expired_leases_only_after_a_session_of_timely_renewals(
    machine: Machine, heartbeats: int, trusts: bool
) -> None:
    broker = await machine.broker(0, heartbeats)
    assert not broker.trusts_expiry(monotonic_ms(machine.clock)), "it has no lease yet"
    await broker.join()
    assert broker.trusts_expiry(monotonic_ms(machine.clock) + SESSION_MS - 1)
    assert not broker.trusts_expiry(monotonic_ms(machine.clock) + SESSION_MS)
    machine.clock.passed_ms += SESSION_MS
    with pytest.raises(Stopped):
        await broker.keep()
    assert broker.trusts_expiry(monotonic_ms(machine.clock)) is trusts


async def test_a_broker_acquires_the_controller_lease_as_soon_as_it_expires(machine: Machine) -> None:
    first, second = await machine.broker(0), await machine.broker(1, heartbeats=99)
    await first.join()
    expires_ms = monotonic_ms(machine.clock) + SESSION_MS
    machine.clock.passed_ms += HEARTBEAT_MS // 2
    await second.join()
    keeping = asyncio.create_task(second.keep())
    while not second.is_controller:
        await asyncio.sleep(0)
    assert monotonic_ms(machine.clock) == expires_ms
    await second.leave()
    await keeping


class UnsureStore(SqliteStore):
    """A store that loses the first response to a write of the controller document; a newer version then changes it."""

    is_unsure = True

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        version = await super().put(key, value, expected_version)
        if key == CONTROLLER_KEY and self.is_unsure:
            self.is_unsure = False
            await super().put(key, b'{"seen_by":"a newer version",' + value.removeprefix(b"{"), version)
            raise StoreUnavailable("it was done")
        return version


async def test_a_controller_writes_its_document_once_per_term(machine: Machine) -> None:
    store = await UnsureStore.open(machine.path, machine.clock)
    machine.stores.append(store)
    broker = Membership(
        store,
        MetadataImage(),
        BrokerRegistration(0, UUID(int=9), ()),
        HEARTBEAT_MS,
        SESSION_MS,
        machine.clock,
        asyncio.sleep,
    )
    with pytest.raises(StoreUnavailable):
        await broker.join()
    await broker.try_for_controller()
    assert broker.is_controller
    found = await store.get(CONTROLLER_KEY)
    assert found is not None
    assert b"a newer version" in found.value


class FailingStore(SqliteStore):
    """A store that fails the next `fails` writes of registrations."""

    fails = 0

    async def put(self, key: str, value: bytes, expected_version: int | None = None) -> int:
        if key.startswith("brokers/") and self.fails:
            self.fails -= 1
            raise StoreUnavailable("away")
        return await super().put(key, value, expected_version)


async def test_a_broker_retries_a_failed_registration(machine: Machine) -> None:
    store = await FailingStore.open(machine.path, machine.clock)
    machine.stores.append(store)
    left = 6

    async def sleep(seconds: float) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Stopped

    broker = Membership(
        store, MetadataImage(), BrokerRegistration(0, UUID(int=9), ()), HEARTBEAT_MS, SESSION_MS, machine.clock, sleep
    )
    await broker.join()
    machine.clock.passed_ms += SESSION_MS
    stolen = await store.acquire_lease("broker-0", "somebody else", SESSION_MS)
    assert stolen is not None
    await store.release_lease(stolen)
    store.fails = 2
    with pytest.raises(Stopped):
        await broker.keep()
    (lease,) = await store.leases("broker-0")
    assert (await machine.image()).brokers[0].broker_epoch == lease.token
