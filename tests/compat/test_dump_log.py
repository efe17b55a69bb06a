"""Kafka's own tool reads our segments, indexes and snapshots without a complaint (F20, F21, F47)."""

import random
import re
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas_core.topic_partition import coordinator_partition
from drivers.broker_under_test import KEPT_FOR_EVER
from drivers.interface import COMPRESSIONS, Message
from drivers.kafka_tools import KafkaTools
from drivers.librdkafka import LibrdkafkaClient
from harness.deadline import wait_for
from harness.server_process import ServerProcess

TOPIC, GROUP = "dumped", "dumping"
SMALL_BATCHES: Final[dict[str, Any]] = {"batch.size": 6_000}
COMPLAINTS = re.compile(r"mismatch|invalid|corrupt|exception|isvalid: false|non-consecutive|out of order|error", re.I)
RECORDS = 6_000


@pytest.fixture
def filled_logs(own_broker: ServerProcess) -> Path:
    """The log dir of a stopped broker with a topic of several segments in every codec, and a group's offsets."""
    client = LibrdkafkaClient(own_broker.bootstrap)
    client.create_topic(TOPIC, 1, {"segment.bytes": "1048576", **KEPT_FOR_EVER})
    chance = random.Random("segments")
    for n, compression in enumerate(COMPRESSIONS):
        first = n * RECORDS // 5
        numbers = range(first, first + RECORDS // 5)
        messages = [
            Message(chance.randbytes(700), key=b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
            for number in numbers
        ]
        client.produce(TOPIC, messages, compression=compression, idempotent=n % 2 == 0, **SMALL_BATCHES)
    member = client.join(GROUP, "member", [TOPIC])
    wait_for(member.records, lambda records: len(records) == RECORDS)
    member.commit()
    member.leave()
    # The indexes of the last segment get their final size when the broker stops.
    own_broker.stop()
    return own_broker.log_path.parent / "logs"


def dump(tools: KafkaTools, *files: Path, options: str = "") -> str:
    """Return the output of a dump that has no complaints."""
    shown = tools.check(f"kafka-dump-log.sh --files {','.join(map(str, files))} {options}")
    complaints = [line for line in shown.splitlines() if COMPLAINTS.search(line)]
    assert not complaints, complaints[:5]
    return shown


def test_kafkas_dump_tool_reads_segments_and_indexes(tools: KafkaTools, filled_logs: Path) -> None:
    folder = filled_logs / f"{TOPIC}-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1
    offsets = []
    for segment in segments:
        shown = dump(tools, segment, options="--deep-iteration")
        assert re.search(rf"Log starting offset: {int(segment.stem)}\b", shown)
        offsets += [int(found) for found in re.findall(r"^\| offset: (\d+)", shown, re.M)]
    assert offsets == list(range(RECORDS))
    for segment in segments[:-1]:
        assert "offset: " in dump(tools, segment.with_suffix(".index"))
        assert "timestamp: " in dump(tools, segment.with_suffix(".timeindex"))
    for index in (".index", ".timeindex"):
        files = [segment.with_suffix(index) for segment in segments]
        shown = dump(tools, *files, options="--index-sanity-check")
        assert shown.count("passed sanity check") == len(files)


def test_kafkas_dump_tool_reads_producer_snapshots(tools: KafkaTools, filled_logs: Path) -> None:
    snapshots = sorted((filled_logs / f"{TOPIC}-0").glob("*.snapshot"))
    assert snapshots
    ids = re.findall(r"producerId: (\d+)", dump(tools, snapshots[-1]))
    assert {ids.count(each) for each in ids} == {5}  # The last five batches of each producer are known.


def test_kafkas_dump_tool_decodes_records_of_offsets_and_groups(tools: KafkaTools, filled_logs: Path) -> None:
    folder = filled_logs / f"__consumer_offsets-{coordinator_partition(GROUP, 50)}"
    shown = dump(tools, *folder.glob("*.log"), options="--offsets-decoder")
    offsets = [line for line in shown.splitlines() if f'"group":"{GROUP}"' in line and f'"topic":"{TOPIC}"' in line]
    assert offsets
    assert f'"offset":{RECORDS}' in offsets[-1]
    assert '"protocolType":"consumer"' in shown
