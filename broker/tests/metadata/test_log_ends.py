"""Brokers' reports of log end offsets, and conclusions from them when records are lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from operator import sub
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from metadata_cluster import a_topic, led

from barnabas_broker.metadata.documents import encode, log_ends_key, topic_key
from barnabas_broker.metadata.image import image_feed
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.log_ends import (
    NO_LOG,
    PARTS,
    HeldLog,
    KnownEnds,
    LogEnds,
    lacks_records,
    part_of,
)
from barnabas_broker.metadata.model import NO_LEADER, BrokerRegistration, LogEnd, LogEndsDocument, PartitionState
from barnabas_broker.metadata.store.metadata_store import StoreUnavailable, Write
from barnabas_broker.metadata.store.sqlite_store import SqliteStore
from barnabas_broker.storage.log_dirs.log_dir import Kept
from barnabas_core.loop_turns import REPORTED_LOGS
from barnabas_core.topic_partition import LEADER_EPOCH_MAX
from harness.manual_clock import ManualClock

TOPIC = a_topic("t", led(1, epoch=3), led(1, epoch=3))
LOST = PartitionState((1,), NO_LEADER, 4, (), last_known_leader=1, lacking=(1,), partition_epoch=1)


class Told:
    """One broker's logs, a store, and an image of it."""

    def __init__(self, store: SqliteStore) -> None:
        self.store = store
        self.held: dict[int, tuple[int, int]] = {}
        self.kept = Kept.ALL
        self.image = MetadataImage()

    def logs(self) -> list[HeldLog]:
        return [HeldLog("t", TOPIC.topic_id, n, *end, self.kept) for n, end in self.held.items()]

    async def see(self) -> MetadataImage:
        await image_feed.load(self.image, self.store)
        return self.image

    async def incarnation(self, epoch: int, *, undealt_epoch: int | None = None) -> LogEnds:
        log_ends = LogEnds(1, self.store, await self.see(), self.logs, lambda: asyncio.sleep(0))
        await log_ends.begin_incarnation(epoch, undealt_epoch=undealt_epoch)
        return log_ends

    async def end(self, partition: int) -> LogEnd | None:
        return KnownEnds(await self.see()).find(1, TOPIC.topic_id, partition)


@pytest.fixture
async def told(tmp_path: Path) -> AsyncIterator[Told]:
    store = await SqliteStore.open(tmp_path / "metadata.sqlite", ManualClock())
    await store.put(topic_key("t"), encode(TOPIC))
    yield Told(store)
    await store.close()


async def test_the_reported_log_end_is_kept_while_a_partition_lacks_records(told: Told) -> None:
    told.held = {0: (3, 9308), 1: (3, 5)}
    log_ends = await told.incarnation(1)
    assert await told.end(0) == LogEnd(0, 3, 9308, 9308)
    told.held, told.kept = {0: (-1, 0)}, Kept.SOME
    log_ends = await told.incarnation(2)
    assert await told.end(0) == LogEnd(0, -1, 0, 9308, True)
    await told.store.put(topic_key("t"), encode(a_topic("t", LOST)))
    await told.see()
    await log_ends.report()
    assert await told.end(0) == LogEnd(0, -1, 0, 9308, True)
    assert await told.end(1) == LogEnd(1, -1, NO_LOG, 5), "the end of a missing log must still be known"


async def test_a_report_with_an_impossible_leader_epoch_is_ignored(told: Told) -> None:
    for epoch, found in ((LEADER_EPOCH_MAX, True), (LEADER_EPOCH_MAX + 1, False)):
        ends = {TOPIC.topic_id: msgspec.Raw(msgspec.json.encode([LogEnd(0, epoch, 5, 5)]))}
        await told.store.put(log_ends_key(1, part_of(TOPIC.topic_id, 0)), encode(LogEndsDocument(1, ends)))
        assert (await told.end(0) is not None) is found


@pytest.mark.parametrize(
    ("kept", "offset", "reported_end", "lacks"),
    [
        (Kept.ALL, 5, 9, False),
        (Kept.SYNCED, 9, 9, False),
        (Kept.SYNCED, 0, None, False),
        (Kept.SYNCED, 5, 9, True),
        (Kept.SYNCED, 0, 9, True),
        (Kept.SOME, 9, 9, True),
        (Kept.SOME, 9, None, True),
    ],
)
def test_a_log_without_all_synced_records_lacks_records_after_a_power_cut(
    kept: Kept, offset: int, reported_end: int | None, lacks: bool
) -> None:
    """A log that ends before the reported end is on an older copy of its disk."""
    reported = None if reported_end is None else LogEnd(0, 3, reported_end, reported_end)
    assert lacks_records(HeldLog("t", TOPIC.topic_id, 0, 3, offset, kept), reported) is lacks


async def test_an_in_sync_replica_reports_its_current_log_end_only(told: Told) -> None:
    told.held = {0: (3, 100)}
    log_ends = await told.incarnation(1)
    log_ends.admitted()
    told.held = {0: (3, 90)}  # The follower truncated its log, and is in sync again.
    await log_ends.report()
    assert await told.end(0) == LogEnd(0, 3, 90, 90)


async def test_only_changed_log_ends_are_written(told: Told) -> None:
    told.held = {0: (3, 100), 1: (3, 5)}
    log_ends = await told.incarnation(1)
    revision = await told.store.latest_revision()
    await told.see()
    await log_ends.report()
    assert await told.store.latest_revision() == revision
    told.held[1] = (3, 6)
    await log_ends.report()
    assert await told.store.latest_revision() == revision + 1


async def test_a_report_is_written_again_after_a_failed_write(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    told.held = {0: (3, 100)}
    log_ends = await told.incarnation(1)

    async def fails(_: list[Write]) -> None:
        raise StoreUnavailable("away")

    told.held = {0: (3, 101)}
    with monkeypatch.context() as patched:
        patched.setattr(told.store, "write", fails)
        with pytest.raises(StoreUnavailable):
            await log_ends.report()
    await log_ends.report()
    assert await told.end(0) == LogEnd(0, 3, 101, 101)


async def test_the_next_incarnation_still_lacks_the_records_until_the_loss_is_handled(told: Told) -> None:
    told.held, told.kept = {0: (3, 100)}, Kept.SOME
    await told.incarnation(1)
    told.kept = Kept.ALL
    await told.incarnation(2, undealt_epoch=1)
    assert await told.end(0) == LogEnd(0, 3, 100, 100, True)
    await told.incarnation(3, undealt_epoch=None)
    assert await told.end(0) == LogEnd(0, 3, 100, 100, False)


async def test_an_incarnation_that_never_registered_does_not_hide_lacking_records(told: Told) -> None:
    told.held, told.kept = {0: (3, 100)}, Kept.SOME
    await told.incarnation(1)
    told.kept = Kept.ALL
    await told.incarnation(2, undealt_epoch=1)  # The registration of the first incarnation stays.
    await told.incarnation(3, undealt_epoch=1)
    assert await told.end(0) == LogEnd(0, 3, 100, 100, True)


@pytest.mark.parametrize(("dirs_away", "lost"), [(False, True), (True, False)])
async def test_a_missing_log_is_lost_unless_a_log_dir_is_offline(told: Told, dirs_away: bool, lost: bool) -> None:
    told.held = {0: (3, 100)}
    await told.incarnation(7)
    registration = BrokerRegistration(
        1, UUID(int=1), (), broker_epoch=7, may_lack_records=True, dirs_away=dirs_away, fenced=True
    )
    known = KnownEnds(await told.see())
    assert not known.lost_by_a_start(registration, TOPIC.topic_id, 0)
    assert known.lost_by_a_start(registration, TOPIC.topic_id, 1) is lost


async def test_thirty_thousand_partitions_are_reported_in_documents_below_100_kb(told: Told) -> None:
    store = told.store
    topics = [UUID(int=number << 64 | 77 * number) for number in range(3)]
    logs = [HeldLog("t", topic, n, 1234, 10**12, Kept.ALL) for topic in topics for n in range(10_000)]
    log_ends = LogEnds(1, store, await told.see(), lambda: logs, lambda: asyncio.sleep(0))
    await log_ends.begin_incarnation(1, undealt_epoch=None)
    documents = [each for each in (await store.listing()).documents if each.key.startswith("log-ends/1/")]
    assert len(documents) <= PARTS
    assert max(len(each.value) for each in documents) < 100_000


async def test_an_incarnation_reports_many_logs_over_several_turns(told: Told) -> None:
    told.held = {number: (3, number) for number in range(4 * REPORTED_LOGS)}
    looked, looked_by_turn = [0], [0]

    def logs() -> Iterator[HeldLog]:
        for held in told.logs():
            looked[0] += 1
            yield held

    async def pause() -> None:
        looked_by_turn.append(looked[0])

    log_ends = LogEnds(1, told.store, await told.see(), logs, pause)
    await log_ends.begin_incarnation(1, undealt_epoch=None)
    assert len(looked_by_turn) > 8, "one pass over the logs for lost records, one for the report"
    assert max(map(sub, looked_by_turn[1:], looked_by_turn)) <= REPORTED_LOGS
    turns = len(looked_by_turn)
    await log_ends.report()
    assert len(looked_by_turn) - turns >= 2 * 4 + PARTS, "each turn handles some logs, or one document"
