"""F22: files torn by a crash or damaged by a disk. At most one partition goes offline; all others are served."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message, TopicPartition
from faulty_broker import KAFKA_STORAGE_ERROR, FaultyBroker
from started_brokers import StartBroker

from harness.barnabas_server import page
from harness.deadline import wait_for

SEGMENT_BYTES = 1024 * 1024
VALUES = [b"%06d" % number + b"x" * 9_000 for number in range(300)]
MORE = [b"more %d" % number for number in range(20)]


@pytest.fixture
def broker(start_broker: StartBroker) -> FaultyBroker:
    """A broker with `flights` in three segments, one record per batch, and `others`, which is never damaged."""
    broker = start_broker()
    broker.client.create_topic_in("flights", segment_bytes=str(SEGMENT_BYTES))
    broker.client.create_topic("others")
    for error in broker.client.send("flights", VALUES, batch_num_messages=1):
        assert error is None
    broker.client.write("others", MORE)
    assert len(logs_of(broker)) == 3
    return broker


def logs_of(broker: FaultyBroker) -> list[Path]:
    return sorted(broker.partition_dir("flights").glob("*.log"))


def go_on(broker: FaultyBroker, values: list[bytes] = VALUES) -> None:
    """Check that `flights` has these values and accepts more, and that the broker is ready."""
    assert broker.client.read("flights") == values
    broker.client.write("flights", MORE)
    assert broker.client.read("flights") == values + MORE
    wait_for(broker.ready, lambda answer: answer == "ok")


def test_a_torn_last_batch_is_truncated_and_the_log_accepts_appends(broker: FaultyBroker) -> None:
    broker.server.kill()
    path = logs_of(broker)[-1]
    half_a_batch = path.read_bytes()[:4000]
    with path.open("ab") as log:
        log.write(half_a_batch)
    broker.server.start()
    assert len(broker.lines("WARNING", path.name, "bytes were cut off because they are not complete")) == 1
    go_on(broker)


MAGIC, CRC = 16, 17


def damage_batch(broker: FaultyBroker, segment: int, place: int) -> int:
    """Change the byte at this place of the batch in the middle of a segment; return the batch's offset."""
    path = logs_of(broker)[segment]
    data = bytearray(path.read_bytes())
    position = 0
    while position < len(data) // 2:
        position += 12 + struct.unpack_from(">i", data, position + 8)[0]
    offset: int = struct.unpack_from(">q", data, position)[0]
    data[position + place] ^= 0x10
    path.write_bytes(data)
    return offset


def read_until(broker: FaultyBroker, offset: int, is_so: Callable[[], object]) -> list[Message]:
    """Return what a consumer of `flights` gets from this offset until the condition holds, and in one second more."""
    consumer = broker.client.consumer()
    try:
        consumer.assign([TopicPartition("flights", 0, offset)])
        got: list[Message] = []

        def have_come() -> bool:
            got.extend(consumer.consume(1000, 0.05))
            return bool(is_so())

        wait_for(have_come)
        return got + consumer.consume(1000, 1)
    finally:
        consumer.close()


def test_a_corrupt_batch_takes_its_partition_offline_when_it_is_read(broker: FaultyBroker) -> None:
    assert broker.server.stop() == 0
    offset = damage_batch(broker, 0, MAGIC)
    broker.server.start()
    met = read_until(broker, offset, lambda: broker.lines("ERROR", "flights-0", "is damaged at byte"))
    assert len(broker.lines("ERROR", "flights-0", "is damaged at byte")) == 1
    assert [message.value() for message in met if message.error() is None] == []
    assert broker.client.error_of_write("flights") == KAFKA_STORAGE_ERROR
    assert "flights-0" in broker.ready()
    assert broker.client.read("others") == MORE
    broker.client.write("others", MORE)


def test_a_corrupt_batch_after_the_recovery_point_is_truncated(broker: FaultyBroker) -> None:
    broker.server.kill()
    damage_batch(broker, 2, CRC)
    broker.server.start()
    kept = broker.client.read("flights")
    assert 200 < len(kept) < len(VALUES)
    assert len(broker.lines("WARNING", "were cut off")) == 1
    go_on(broker, VALUES[: len(kept)])


def test_a_partition_that_is_damaged_before_the_recovery_point_starts_offline(broker: FaultyBroker) -> None:
    """A batch that was synced and is invalid now is damaged: nothing is truncated, since an operator must decide."""
    assert broker.server.stop() == 0
    damage_batch(broker, 2, MAGIC)
    logs_of(broker)[2].with_suffix(".index").unlink()
    broker.server.start()
    sizes = [path.stat().st_size for path in logs_of(broker)]
    assert len(broker.lines("ERROR", "flights-0 is damaged at byte")) == 1
    assert broker.client.error_of_write("flights") == KAFKA_STORAGE_ERROR
    assert page(broker.http_port, "/readyz") == (503, "offline: flights-0\n")
    assert page(broker.http_port, "/startupz") == (200, "ok\n")  # Else the startup probe kills the pod for ever.
    assert page(broker.http_port, "/healthz") == (200, "ok\n")
    assert broker.client.read("others") == MORE
    assert [path.stat().st_size for path in logs_of(broker)] == sizes
