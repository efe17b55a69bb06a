"""The small files of a log dir, byte for byte as Kafka writes them."""

from collections.abc import Callable
from uuid import UUID

import pytest

from barnabas_broker.storage.disk import checkpoints
from barnabas_broker.storage.disk import checkpoints as files
from barnabas_core.topic_partition import TopicPartition

TOPIC_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")


def test_offsets_by_partition() -> None:
    offsets = {TopicPartition("flights", 0): 12, TopicPartition("a-b.c_d", 11): 0}
    data = files.encode_offsets(offsets)
    assert data == b"0\n2\nflights 0 12\na-b.c_d 11 0\n"
    assert files.decode_offsets(data) == offsets


def test_leader_epochs() -> None:
    data = files.encode_epochs([files.EpochStart(0, 0), files.EpochStart(4, 17)])
    assert data == b"0\n2\n0 0\n4 17\n"
    assert files.decode_epochs(data) == [(0, 0), (4, 17)]


def test_partition_metadata() -> None:
    data = files.encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: Dx4tPEtaaXiHlqW0w9Lh8A"
    assert files.decode_partition_metadata(data) == TOPIC_ID
    assert files.decode_partition_metadata(data + b"\n") == TOPIC_ID


def test_meta_properties() -> None:
    meta = files.MetaProperties("MkU3OEVBNTcwNTJENDM2Qk", 3, TOPIC_ID)
    data = files.encode_meta_properties(meta)
    assert data == (b"cluster.id=MkU3OEVBNTcwNTJENDM2Qk\ndirectory.id=Dx4tPEtaaXiHlqW0w9Lh8A\nnode.id=3\nversion=1\n")
    assert files.decode_meta_properties(b"#\n#Sat Nov 21 04:46:23 UTC 2026\n" + data) == meta


@pytest.mark.parametrize(
    ("decode", "data", "complaint"),
    [
        (files.decode_offsets, b"", "the first line is ''"),
        (files.decode_offsets, b"1\n0\n", "the first line is '1', but the file must begin with the version 0"),
        (files.decode_offsets, b"0\n2\nflights 0 1\n", "the file has 1 entries, but its second line announces 2"),
        (files.decode_offsets, b"0\n1\nflights 0\n", "'flights 0' has 2 fields, but must have 3"),
        (files.decode_offsets, b"0\n1\nflights 0 -1\n", "-1 is out of range"),
        (files.decode_offsets, b"0\n1\nflights 0 9223372036854775808\n", "9223372036854775808 is out of range"),
        (files.decode_epochs, b"0\n1\n0 x\n", "invalid literal"),
        (files.decode_epochs, b"0\n1\n-1 0\n", "-1 is out of range"),
        (files.decode_epochs, b"0\n1\n9223372036854775807 0\n", "is out of range; 0 to 1073741824 are allowed"),
        (files.decode_epochs, b"0\n2\n1 0\n1 5\n", "must rise"),
        (files.decode_epochs, b"0\n2\n1 7\n2 5\n", "must rise"),
        (files.decode_partition_metadata, b"version: 1\n", "must hold"),
        (files.decode_meta_properties, b"version=1\ncluster.id=a\n", "the file lacks directory.id, node.id"),
        (files.decode_meta_properties, b"version=0\nbroker.id=1\n", "the file lacks cluster.id, directory.id, node.id"),
    ],
)
def test_a_malformed_file_is_refused_with_the_reason(
    decode: Callable[[bytes], object], data: bytes, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        decode(data)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000042.log", (42, ".log", "")),
        ("00000000000000000042.timeindex.deleted", (42, ".timeindex", ".deleted")),
        ("00000000000000000042.index.swap", (42, ".index", ".swap")),
        ("42.log", None),
        ("leader-epoch-checkpoint", None),
        ("00000000000000000042.log.old", None),
    ],
)
def test_names_of_segment_files(name: str, parsed: tuple[int, str, str] | None) -> None:
    assert checkpoints.parse_segment_file(name) == parsed


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("flights-3", "flights", 3, ""),
        ("a-1-2", "a-1", 2, ""),
        ("__consumer_offsets-49", "__consumer_offsets", 49, ""),
        ("a.b-0.0f1e2d3c4b5a69788796a5b4c3d2e1f0-delete", "a.b", 0, "-delete"),
        ("a-0.0f1e2d3c4b5a69788796a5b4c3d2e1f0-future", "a", 0, "-future"),
    ],
)
def test_names_of_partition_directories(name: str, topic: str, partition: int, state: str) -> None:
    assert checkpoints.parse_partition_dir(name) == (TopicPartition(topic, partition), state)


@pytest.mark.parametrize("name", ["lost+found", "flights", "flights-", "-1", "a-b"])
def test_other_directories_are_no_partitions(name: str) -> None:
    assert checkpoints.parse_partition_dir(name) is None


def test_a_long_topic_name_is_cut_to_the_limit_of_file_systems() -> None:
    name = checkpoints.marked_dir(TopicPartition("x" * 249, 7), TOPIC_ID, "-delete")
    assert len(name) == 255
    assert name.endswith(f"-7.{TOPIC_ID.hex}-delete")
