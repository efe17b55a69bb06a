"""What a broker remembers of the metadata over its restart, against what the store has then."""

import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest
from metadata_cluster import a_topic, led

from barnabas_broker.app import metadata_copy_file
from barnabas_broker.app.metadata_copy_file import FILE, MetadataCopyFile
from barnabas_broker.metadata.documents import (
    CLUSTER_KEY,
    FEATURES_KEY,
    PRODUCER_IDS_KEY,
    AnyDocument,
    broker_configs_key,
    broker_key,
    encode,
    tombstone_key,
    topic_key,
)
from barnabas_broker.metadata.image.image_feed import load
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.remembering import (
    PRODUCER_IDS_MARGIN,
    Remembered,
    encode_copy,
    newer_documents,
    newest_copy,
    restore,
)
from barnabas_broker.metadata.image.restoration import compared
from barnabas_broker.metadata.model import (
    NO_LEADER,
    BrokerRegistration,
    ClusterDocument,
    ConfigDocument,
    FeaturesDocument,
    ProducerIdsDocument,
    TombstoneDocument,
)
from barnabas_broker.metadata.store.metadata_store import Write
from barnabas_broker.metadata.store.sqlite.sqlite_store import SqliteStore
from barnabas_broker.storage.disk.files import PosixFileSystem
from barnabas_broker.storage.errors import LogDirRefused
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_dir_owner import BrokerIdentity
from barnabas_core.config.broker_config import parse_broker_config
from harness.manual_clock import ManualClock

pytestmark = pytest.mark.anyio

HERE = 1
CLUSTER: dict[str, AnyDocument] = {CLUSTER_KEY: ClusterDocument("the-id")}
REGISTERED = {broker_key(HERE): BrokerRegistration(HERE, UUID(int=1), ())}
FLIGHTS = a_topic("flights", led(1, 2, epoch=5), led(2, 1, epoch=5))
REMEMBERED: dict[str, AnyDocument] = {
    **CLUSTER,
    topic_key("flights"): FLIGHTS,
    broker_configs_key(""): ConfigDocument({"log.retention.ms": "5"}),
    PRODUCER_IDS_KEY: ProducerIdsDocument(9000),
}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(tmp_path / "metadata.sqlite", ManualClock())
    yield opened
    await opened.close()


async def restored(store: SqliteStore, *stored: Mapping[str, AnyDocument]) -> tuple[MetadataImage, int]:
    """The image of a broker that starts, and how much it wrote."""
    documents = {key: document for each in stored for key, document in each.items()}
    await store.write([Write(key, encode(document)) for key, document in documents.items()])
    image = MetadataImage()
    await load(image, store)
    return image, await restore(REMEMBERED, image, store, HERE)


async def test_an_empty_store_gets_everything_back(store: SqliteStore) -> None:
    image, written = await restored(store)
    assert written == 4
    assert image.cluster_id == "the-id"
    assert image.configs_of_broker("") == {"log.retention.ms": "5"}
    assert image.next_producer_id == 9000 + PRODUCER_IDS_MARGIN
    first, second = image.topics["flights"].partitions
    assert image.topics["flights"].topic_id == FLIGHTS.topic_id
    assert (first.leader, first.leader_epoch, first.isr, first.unconfirmed) == (NO_LEADER, 6, (1, 2), (2,))
    assert (second.isr, second.last_known_leader, second.unconfirmed) == ((2, 1), 2, (2,))


async def test_what_the_store_knows_as_well_is_left_alone(store: SqliteStore) -> None:
    newer = msgspec.structs.replace(FLIGHTS.partitions[0], partition_epoch=9)
    known = msgspec.structs.replace(FLIGHTS, partitions=(newer, FLIGHTS.partitions[1]))
    image, written = await restored(store, REMEMBERED, REGISTERED, {topic_key("flights"): known})
    assert written == 0
    assert image.topics["flights"] == known


async def test_brokers_that_start_later_on_a_store_that_was_emptied_give_their_part(store: SqliteStore) -> None:
    image = MetadataImage()
    await load(image, store)
    others = {topic_key("others"): a_topic("others", led(2))}
    since: dict[str, AnyDocument] = {CLUSTER_KEY: ClusterDocument("the-id", restored_ms=7)}
    assert await restore(REMEMBERED | since, image, store, HERE) == 4
    assert await restore(CLUSTER | others, image, store, 2) == 1
    assert image.topics.keys() == {"flights", "others"}
    assert image.document(CLUSTER_KEY) == since[CLUSTER_KEY]
    assert newer_documents(since | {topic_key("more"): a_topic("more", led(3))}, image, 3) == {}, "it was unregistered"


async def test_levels_of_features_come_back(store: SqliteStore) -> None:
    image = MetadataImage()
    await load(image, store)
    levels: dict[str, AnyDocument] = {FEATURES_KEY: FeaturesDocument({"metadata.version": 7})}
    await restore(CLUSTER | levels, image, store, HERE)
    assert image.features == {"metadata.version": 7}
    assert Remembered(image, HERE).take().items() >= (CLUSTER | levels).items()


async def test_what_waited_for_others_when_it_was_remembered_is_not_newer_for_that(store: SqliteStore) -> None:
    """A broker that was started once on an empty store by mistake, where nobody could lead, comes home."""
    waiting = msgspec.structs.replace(
        FLIGHTS.partitions[0], leader=NO_LEADER, partition_epoch=30, unconfirmed=(2,), restored_epoch=3
    )
    remembered = {topic_key("flights"): msgspec.structs.replace(FLIGHTS, partitions=(waiting,))}
    at_home = msgspec.structs.replace(FLIGHTS.partitions[0], isr=(2,), leader=2, partition_epoch=5)
    known = {topic_key("flights"): msgspec.structs.replace(FLIGHTS, partitions=(at_home,))}
    await restored(store, REMEMBERED, REGISTERED, known)
    image = MetadataImage()
    await load(image, store)
    assert newer_documents(CLUSTER | remembered, image, HERE) == {}
    older = msgspec.structs.replace(at_home, partition_epoch=2)
    found = compared(remembered[topic_key("flights")], msgspec.structs.replace(FLIGHTS, partitions=(older,)), HERE)
    assert (found.partitions[0].restored_epoch, found.partitions[0].unconfirmed) == (3, (2,))


async def test_an_older_topic_is_brought_up_to_what_is_remembered(store: SqliteStore) -> None:
    older = a_topic("flights", led(1, 2, epoch=4))
    remembered = msgspec.structs.replace(FLIGHTS.partitions[0], partition_epoch=3)
    newest = {topic_key("flights"): msgspec.structs.replace(FLIGHTS, partitions=(remembered, FLIGHTS.partitions[1]))}
    await restored(store, REMEMBERED, REGISTERED, {topic_key("flights"): older})
    image = MetadataImage()
    await load(image, store)
    assert await restore(REMEMBERED | newest, image, store, HERE) == 1
    first, second = image.topics["flights"].partitions
    assert (first.leader, first.leader_epoch, first.restored_epoch) == (NO_LEADER, 6, 3)
    assert second.unconfirmed == (2,)


async def test_a_topic_that_was_deleted_stays_deleted(store: SqliteStore) -> None:
    tombstone = {tombstone_key(FLIGHTS.topic_id): TombstoneDocument("flights", FLIGHTS.topic_id, 0)}
    image, _ = await restored(store, CLUSTER, REGISTERED, tombstone)
    assert image.topics == {}


async def test_a_topic_that_was_made_again_stays_as_it_is(store: SqliteStore) -> None:
    again = {topic_key("flights"): msgspec.structs.replace(FLIGHTS, topic_id=UUID(int=99))}
    image, _ = await restored(store, CLUSTER, REGISTERED, again)
    assert image.topics["flights"].topic_id == UUID(int=99)


async def test_a_topic_that_was_made_again_takes_the_place_of_the_one_that_is_deleted(store: SqliteStore) -> None:
    before = {topic_key("flights"): msgspec.structs.replace(FLIGHTS, topic_id=UUID(int=99))}
    tombstone = {tombstone_key(UUID(int=99)): TombstoneDocument("flights", UUID(int=99), 0)}
    image, _ = await restored(store, CLUSTER, REGISTERED, before, tombstone)
    assert image.topics["flights"].topic_id == FLIGHTS.topic_id


async def test_a_broker_that_was_unregistered_or_is_of_another_cluster_says_nothing(store: SqliteStore) -> None:
    image, written = await restored(store, CLUSTER)
    assert written == 0
    other = MetadataImage()
    await store.put(CLUSTER_KEY, encode(ClusterDocument("another-id")))
    await load(other, store)
    assert newer_documents(REMEMBERED, other, HERE) == {}
    assert newer_documents({}, image, HERE) == {}


def test_the_newest_file_that_can_be_read_counts() -> None:
    files = [encode_copy({CLUSTER_KEY: ClusterDocument(name)}, written_ms) for name, written_ms in [("a", 5), ("b", 7)]]
    assert newest_copy([*files, b"{torn", b"[]"]) == {CLUSTER_KEY: ClusterDocument("b")}
    assert newest_copy([]) == {}


def own(log_dir: Path, node_id: int, cluster_id: str = "the-id") -> None:
    log_dir.mkdir(exist_ok=True)
    LogDir(PosixFileSystem(), str(log_dir)).open(BrokerIdentity(cluster_id, node_id), uuid4)


def memory_of(image: MetadataImage, log_dir: Path) -> MetadataCopyFile:
    config = parse_broker_config({"node.id": str(HERE), "log.dirs": str(log_dir)})
    return MetadataCopyFile(image, config, PosixFileSystem(), ManualClock())


async def test_a_lost_cluster_comes_back_under_its_id(tmp_path: Path, store: SqliteStore) -> None:
    own(tmp_path, HERE)
    (tmp_path / FILE).write_bytes(encode_copy(REMEMBERED, 0))
    image = MetadataImage()
    await load(image, store)
    await memory_of(image, tmp_path).restore(store)
    assert image.document(CLUSTER_KEY) == ClusterDocument("the-id", restored_ms=ManualClock().now_ms())
    assert "flights" in image.topics


async def test_new_log_dirs_say_nothing_of_an_empty_store(tmp_path: Path, store: SqliteStore) -> None:
    await memory_of(MetadataImage(), tmp_path).restore(store)
    assert await store.get(CLUSTER_KEY) is None


@pytest.mark.parametrize("copy", [b"", encode_copy(REMEMBERED, 0)[:50]])
async def test_a_cluster_id_without_memory_is_used_only_where_there_are_no_logs(
    tmp_path: Path, store: SqliteStore, copy: bytes
) -> None:
    own(tmp_path, HERE)
    (tmp_path / FILE).write_bytes(copy)
    (tmp_path / "flights-0").mkdir()
    with pytest.raises(LogDirRefused, match=r"cluster.id=the-id; this is node.id=1, and metadata.store=.* is empty"):
        await memory_of(MetadataImage(), tmp_path).restore(store)
    assert await store.get(CLUSTER_KEY) is None
    (tmp_path / "flights-0").rmdir()
    await memory_of(MetadataImage(), tmp_path).restore(store)
    found = await store.get(CLUSTER_KEY)
    assert found is not None
    assert found.value == encode(ClusterDocument("the-id", restored_ms=ManualClock().now_ms()))


@pytest.mark.parametrize(("node_id", "cluster_id"), [(2, "the-id"), (HERE, "another-id")])
async def test_a_copy_in_a_log_dir_of_another_broker_or_cluster_is_not_read(
    tmp_path: Path, store: SqliteStore, node_id: int, cluster_id: str
) -> None:
    own(tmp_path, node_id, cluster_id)
    (tmp_path / "flights-0").mkdir()
    (tmp_path / FILE).write_bytes(encode_copy(REMEMBERED, 0))
    with pytest.raises(LogDirRefused):
        await memory_of(MetadataImage(), tmp_path).restore(store)
    assert await store.get(CLUSTER_KEY) is None
    await store.write([Write(key, encode(each)) for key, each in (CLUSTER | REGISTERED).items()])
    image = MetadataImage()
    await load(image, store)
    await memory_of(image, tmp_path).restore(store)
    assert image.topics == {}, "the log dirs are refused a moment later"


async def test_what_changes_is_written_to_the_first_log_dir_that_works(tmp_path: Path, store: SqliteStore) -> None:
    elsewhere = {topic_key("others"): a_topic("others", led(2, 3))}
    await store.write([Write(key, encode(each)) for key, each in (REMEMBERED | REGISTERED | elsewhere).items()])
    image = MetadataImage()
    await load(image, store)
    files = PosixFileSystem()
    log_dirs = [LogDir(files, str(tmp_path / name)) for name in ("gone", "there")]
    log_dirs[0].failure = OSError()  # type: ignore[assignment]
    own(tmp_path / "there", HERE)
    paths = ",".join(each.path for each in log_dirs)
    config = parse_broker_config({"node.id": str(HERE), "log.dirs": paths})
    copies = MetadataCopyFile(image, config, files, ManualClock())
    copies.start(log_dirs)
    await copies.write()
    assert copies.read() == REMEMBERED
    (tmp_path / "there" / FILE).unlink()
    await copies.write()
    assert copies.read() == {}, "nothing has changed since"
    await store.write(
        [Write(tombstone_key(FLIGHTS.topic_id), encode(TombstoneDocument("flights", FLIGHTS.topic_id, 0)))]
    )
    await store.delete(topic_key("flights"))
    await load(image, store)
    await copies.write()
    assert copies.read().keys() == REMEMBERED.keys() - {topic_key("flights")}


async def test_a_thread_encodes_what_is_remembered(
    tmp_path: Path, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.write([Write(key, encode(each)) for key, each in REMEMBERED.items()])
    image, threads = MetadataImage(), list[int]()
    await load(image, store)

    def observed(documents: Mapping[str, AnyDocument], written_ms: int) -> bytes:
        threads.append(threading.get_ident())
        return encode_copy(documents, written_ms)

    monkeypatch.setattr(metadata_copy_file, "encode_copy", observed)
    own(tmp_path, HERE)
    copies = memory_of(image, tmp_path)
    copies.start([LogDir(PosixFileSystem(), str(tmp_path))])
    await copies.write()
    assert copies.read() == REMEMBERED
    assert len(threads) == 1
    assert threading.get_ident() not in threads
