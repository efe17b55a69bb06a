"""Dead letters (KIP-1191): which topic takes them, and what they contain.

A dead letter has six headers that name its record, then the headers of the record itself, which Apache Kafka 4.4 drops.
Key, value and headers of the record are copied only if the group's setting says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.wire.record_batch import HEADER_BYTES, BatchHeader, parse_header
from barnabas_broker.wire.records import BrokenRecords, Header, Record, iterate_records
from barnabas_core.config.broker_config import BrokerConfig

GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
_PREFIX: Final = "__dlq.errors."
_INTERNAL: Final = "__"
REJECTED: Final = "Offset rejected by client."
TOO_OFTEN: Final = "Offset delivery count exceeded the threshold."
RECORD_OVERHEAD_BYTES: Final = 64
"""An upper limit of the bytes of a record's lengths, and of those of a header; batches are cut by it."""
UNPACKED_BYTES_MAX: Final = 64 << 20
"""The largest decompressed size of a batch of the source or of dead letters; what is larger is not read."""


class BrokenSetting(Exception):
    """The reason why a group's records can have no dead letters."""


class Missing(NamedTuple):
    """A topic for dead letters that does not exist yet, and may be created."""

    name: str


class Destination(NamedTuple):
    """The partition of the topic that takes the dead letters of a partition."""

    topic: str
    topic_id: UUID
    partition: int
    leader: int
    """The broker id of the leader; -1 if there is none."""


class SourcePartition(NamedTuple):
    """The partition of the records, as dead letters name it."""

    topic: str
    partition: int
    group_id: str


class DeadLetter(NamedTuple):
    """A record without acknowledgement."""

    offset: int
    delivery_count: int
    is_rejected: bool


def destination(
    name: str, source: SourcePartition, image: MetadataImage, config: BrokerConfig
) -> Destination | Missing:
    """Return the partition for dead letters, or the topic to create. Raises BrokenSetting."""
    if not name:
        raise BrokenSetting("errors.deadletterqueue.topic.name is empty")
    if name.startswith(_INTERNAL):
        raise BrokenSetting(f"the name {name} of the topic begins with {_INTERNAL}, as internal topics do")
    if name == source.topic:
        raise BrokenSetting(f"the topic {name} is the source of the records itself")
    topic = image.topics.get(name)
    if topic is None:
        prefix = str(config.value("errors.deadletterqueue.topic.name.prefix"))
        if not config.value("errors.deadletterqueue.auto.create.topics.enable") or not name.startswith(prefix):
            raise BrokenSetting(f"the topic {name} does not exist, and is not created by itself")
        return Missing(name)
    if topic.configs.get(GROUP_ENABLE, "false") != "true":
        raise BrokenSetting(f"the topic {name} does not have {GROUP_ENABLE}=true")
    index = source.partition % len(topic.partitions)
    return Destination(name, topic.topic_id, index, topic.partitions[index].leader)


def headers_of(source: SourcePartition, letter: DeadLetter) -> list[Header]:
    """Return the headers that name the record."""
    values = {
        "topic": source.topic,
        "partition": str(source.partition),
        "offset": str(letter.offset),
        "group": source.group_id,
        "delivery.count": str(letter.delivery_count),
        "message": REJECTED if letter.is_rejected else TOO_OFTEN,
    }
    return [Header(_PREFIX + name, value.encode()) for name, value in values.items()]


def records_of(
    source: SourcePartition, letters: Iterable[DeadLetter], copies: Mapping[int, Record], now_ms: int
) -> Iterator[Record]:
    """Yield the records of dead letters; `copies` has records of the source by offset."""
    for letter in letters:
        copy, headers = copies.get(letter.offset), headers_of(source, letter)
        if copy is None:
            yield Record(0, now_ms, None, None, headers)
        else:
            yield Record(0, now_ms, copy.key, copy.value, [*headers, *copy.headers])


def size_of(record: Record) -> int:
    """Return an upper limit of the size of a record in a batch."""
    headers = sum(len(key.encode(errors="surrogateescape")) + len(value or b"") for key, value in record.headers)
    overhead = RECORD_OVERHEAD_BYTES * (1 + len(record.headers))
    return len(record.key or b"") + len(record.value or b"") + headers + overhead


def in_batches(records: Iterable[Record], bytes_max: int) -> Iterator[Sequence[Record]]:
    """Yield records in batches of at most `bytes_max`; a record that is larger alone loses key, value and own headers.

    Its dead letter still names it.
    """
    batch: list[Record] = []
    size = HEADER_BYTES
    for each in records:
        record = each
        if HEADER_BYTES + size_of(record) > bytes_max:
            own = [header for header in record.headers if header.key.startswith(_PREFIX)]
            record = Record(0, record.timestamp_ms, None, None, own)
        if batch and size + size_of(record) > bytes_max:
            yield batch
            batch, size = [], HEADER_BYTES
        batch.append(record._replace(offset_delta=len(batch)))
        size += size_of(record)
    if batch:
        yield batch


def decoded(data: memoryview, first: int, last: int) -> dict[int, Record]:
    """Return the records of batches from offset `first` to `last`; batches that cannot be read are left out."""
    found: dict[int, Record] = {}
    for position, header in _batches(data):
        if header.base_offset > last or header.last_offset < first or header.is_control:
            continue
        try:
            for record in iterate_records(data, position, header, UNPACKED_BYTES_MAX):
                offset = header.base_offset + record.offset_delta
                if first <= offset <= last:
                    found[offset] = record
        except BrokenRecords:
            continue
    return found


def _batches(data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    position = 0
    while position + HEADER_BYTES <= len(data):
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        yield position, header
        position += header.size_bytes


def named_offsets(data: memoryview, source: SourcePartition) -> tuple[set[int], int | None]:
    """Return the offsets of `source` that dead letters in `data` name, and the offset after the last whole batch."""
    wanted = {"topic": source.topic, "partition": str(source.partition), "group": source.group_id}
    expected = {_PREFIX + name: value.encode() for name, value in wanted.items()}
    found: set[int] = set()
    following = None
    for position, header in _batches(data):
        following = header.last_offset + 1
        if header.is_control:
            continue
        try:
            for record in iterate_records(data, position, header, UNPACKED_BYTES_MAX):
                first_headers = dict(reversed(record.headers[:6]))
                if all(first_headers.get(name) == value for name, value in expected.items()):
                    found.add(int(first_headers.get(_PREFIX + "offset") or b"-1"))
        except (BrokenRecords, ValueError):
            continue
    return found, following
