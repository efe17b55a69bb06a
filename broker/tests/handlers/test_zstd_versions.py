"""zstd is refused for versions of requests that do not support it, as in Kafka (KIP-110)."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from one_replica import FLIGHTS, HERE, NOW_MS, Broker, led

from barnabas_broker.handlers import fetch, produce
from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.channel import Client
from barnabas_broker.storage.inspection import BatchInspector
from barnabas_broker.wire.record_batch import Codec, parse_header
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.config.log_config import Compression, LogConfig
from barnabas_core.errors import ErrorCode


class Channel:
    """A channel that keeps the response."""

    client, trust = Client("PLAINTEXT", "127.0.0.1:5", "client"), None

    def answer(self, parts: list[Any]) -> None:
        self.response = b"".join(bytes(part) for part in parts if isinstance(part, (bytes, bytearray)))

    def answer_soon(self, response: bytes | bytearray) -> None:
        self.answer([response])


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path, led(HERE, 1, HERE, replicas=1))


def services(broker: Broker) -> Any:
    return SimpleNamespace(
        authorizer=None,
        replicas=broker.replicas,
        clock=broker.clock,
        timers=broker.clock,
        inspector=BatchInspector(None, broker.clock, asyncio.timeout),  # type: ignore[arg-type]
        trust=BatchTrust(),
        config=SimpleNamespace(fetch_max_bytes=1 << 20),
    )


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("version", [3, 6, 7])
def test_produce_accepts_zstd_from_version_7_on(broker: Broker, version: int, codec: Codec) -> None:
    batch = bytes(encode_batch([Record(0, NOW_MS, None, b"value")], attributes=codec))
    topic = ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=0, records=batch)
    asked = [topic(name=FLIGHTS.topic, partition_data=[partition])]
    body = ProduceRequest(transactional_id=None, acks=1, timeout_ms=1500, topic_data=asked).encode(version=version)
    channel: Any = Channel()
    produce.handle(services(broker), channel, version, 7, memoryview(bytearray(body)), 0, len(body))
    decoded = ProduceResponse.decode(channel.response, version=version, header=True, framed=True)
    error = decoded.responses[0].partition_responses[0].error_code
    refused = version < 7 and codec is Codec.ZSTD
    assert error == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else ErrorCode.NONE)
    assert broker.partition.log.log_end_offset == (not refused)


@pytest.mark.parametrize("compression", [Compression.ZSTD, Compression.LZ4, Compression.PRODUCER])
@pytest.mark.parametrize("version", [4, 9, 10])
def test_fetch_returns_records_of_a_zstd_topic_from_version_10_on(
    broker: Broker, version: int, compression: Compression
) -> None:
    broker.partition.configure(LogConfig(compression=compression))
    batch = encode_batch([Record(0, NOW_MS, None, b"value")], attributes=Codec.ZSTD)
    broker.partition.append_as_leader(memoryview(batch), parse_header(batch, 0), NOW_MS)
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    asked = [topic(topic=FLIGHTS.topic, partitions=[partition])]
    request = FetchRequest(replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1000, isolation_level=0, topics=asked)
    body = request.encode(version=version)
    channel: Any = Channel()
    fetch.handle(services(broker), channel, version, 7, memoryview(bytearray(body)), 0, len(body))
    refused = version < 10 and compression is Compression.ZSTD
    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if refused else ErrorCode.NONE
    assert (b"flights\0\0\0\1\0\0\0\0" + error_code.to_bytes(2)) in channel.response
