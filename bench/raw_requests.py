"""The few raw requests that the bench sends itself, because a client's start or retries would hide the broker."""

import socket
import struct
import time
from contextlib import suppress
from typing import Final

import crc32c

CLIENT_ID: Final = b"bench"
API_VERSIONS: Final = 18
PRODUCE: Final = 0
PRODUCE_VERSION: Final = 7
OFFSET_COMMIT: Final = 8
OFFSET_COMMIT_VERSION: Final = 2
OFFSET_FETCH: Final = 9
OFFSET_FETCH_VERSION: Final = 1
FIND_COORDINATOR: Final = 10
FIND_COORDINATOR_VERSION: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1
INIT_PRODUCER_ID: Final = 22
LIST_TRANSACTIONS: Final = 66
ATTEMPT_SECONDS_MAX: Final = 2.0
PAUSE_S: Final = 0.002


def _request(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, len(CLIENT_ID)) + CLIENT_ID
    return struct.pack(">i", len(head) + len(body)) + head + body


def api_versions_request() -> bytes:
    """Return ApiVersions v0, the smallest request that exists."""
    return _request(API_VERSIONS, 0, b"")


def _batch(value: bytes, timestamp_ms: int) -> bytes:
    """Return a batch v2 of one record without key; the value is below 64 bytes, so that each length is one byte."""
    assert len(value) < 50
    body = bytes((0, 0, 0, 1, len(value) << 1)) + value + b"\0"
    record = bytes((len(body) << 1,)) + body
    checked = struct.pack(">hiqqqhii", 0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c.crc32c(checked)) + checked


def produce_request(topic: str, value: bytes, timestamp_ms: int, partition: int = 0) -> bytes:
    """Return Produce v7 with acks=all and one record."""
    name = topic.encode()
    batch = _batch(value, timestamp_ms)
    body = (
        struct.pack(">hhiih", -1, -1, 30_000, 1, len(name))
        + name
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    return _request(PRODUCE, PRODUCE_VERSION, body)


def receive(connection: socket.socket) -> bytes:
    """Return one response without its size."""
    size = struct.unpack(">i", _exactly(connection, 4))[0]
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionResetError("closed by the broker")
        got += more
    return got


def acknowledged(connection: socket.socket, topic: str, partition: int = 0) -> bool:
    """Produce one record, and wait for the response. Raises OSError if none comes."""
    connection.sendall(produce_request(topic, b"first", int(time.time() * 1000), partition))
    answer = receive(connection)
    # The error code follows correlation id, one topic with its name, and one partition with its index.
    error = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0]
    return bool(error == 0)


def _acknowledged(port: int, topic: str) -> bool:
    """Try once over a new connection."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=ATTEMPT_SECONDS_MAX) as connection:
            return acknowledged(connection, topic)
    except OSError:
        return False


def wait_for_acknowledgement(port: int, topic: str, seconds_max: float) -> float | None:
    """Return the time of the first acknowledged record (monotonic), or None if there is none within `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        if _acknowledged(port, topic):
            return time.monotonic()
        time.sleep(PAUSE_S)
    return None


def coordinator_request(key: str, kind: int = GROUP) -> bytes:
    """Return FindCoordinator v1 for a group or a transactional id."""
    name = key.encode()
    return _request(FIND_COORDINATOR, FIND_COORDINATOR_VERSION, struct.pack(">h", len(name)) + name + bytes((kind,)))


def init_producer_request(transactional_id: str, timeout_ms: int) -> bytes:
    """Return InitProducerId v0."""
    name = transactional_id.encode()
    return _request(INIT_PRODUCER_ID, 0, struct.pack(">h", len(name)) + name + struct.pack(">i", timeout_ms))


def init_producer_error(answer: bytes) -> int:
    """Return the error code in a response to `init_producer_request`: it follows correlation id and throttle time."""
    return int(struct.unpack_from(">h", answer, 8)[0])


def list_transactions_request() -> bytes:
    """Return ListTransactions v0 without filters: tagged fields, two empty compact arrays, tagged fields."""
    return _request(LIST_TRANSACTIONS, 0, bytes((0, 1, 1, 0)))


def listed_transactions(answer: bytes) -> int | None:
    """Return the length of the array in a response to `list_transactions_request`, or None if it has an error code."""
    # After correlation id, tagged fields and throttle time come error code, unknown filters (empty), and the array.
    (error,) = struct.unpack_from(">h", answer, 9)
    if error:
        return None
    length, shift, place = 0, 0, 12
    while True:
        byte = answer[place]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return length - 1
        shift, place = shift + 7, place + 1


def commit_request(group: str, topic: str, partitions: int, offset: int) -> bytes:
    """Return OffsetCommit v2 of a group without members: the same offset for each of the partitions."""
    name, group_id = topic.encode(), group.encode()
    body = (
        struct.pack(">h", len(group_id))
        + group_id
        # Generation -1, no member id, and the broker's own retention; then one topic.
        + struct.pack(">ihqih", -1, 0, -1, 1, len(name))
        + name
        + struct.pack(">i", partitions)
        + b"".join(struct.pack(">iqh", partition, offset, 0) for partition in range(partitions))
    )
    return _request(OFFSET_COMMIT, OFFSET_COMMIT_VERSION, body)


def commit_error(answer: bytes) -> int:
    """Return the first error code in a response to `commit_request`, or 0 if each offset was accepted."""
    (name_length,) = struct.unpack_from(">h", answer, 4 + 4)
    place = 4 + 4 + 2 + name_length
    (partitions,) = struct.unpack_from(">i", answer, place)
    codes = (struct.unpack_from(">ih", answer, place + 4 + 6 * number)[1] for number in range(partitions))
    return next((code for code in codes if code), 0)


def _committed(connection: socket.socket, group: str, topic: str) -> bool:
    """True if partition 0 has a committed offset and the coordinator has loaded it. Raises OSError."""
    name, group_id = topic.encode(), group.encode()
    body = struct.pack(">h", len(group_id)) + group_id + struct.pack(">ih", 1, len(name)) + name
    connection.sendall(_request(OFFSET_FETCH, OFFSET_FETCH_VERSION, body + struct.pack(">ii", 1, 0)))
    answer = receive(connection)
    # Offset, metadata and error code follow correlation id, one topic with its name, and one partition with its index.
    place = 4 + 4 + 2 + len(name) + 4 + 4
    offset, metadata_length = struct.unpack_from(">qh", answer, place)
    (error,) = struct.unpack_from(">h", answer, place + 10 + max(metadata_length, 0))
    return bool(error == 0 and offset >= 0)


def wait_for_committed_offset(port: int, group: str, topic: str, seconds_max: float) -> float | None:
    """Return the time at which the coordinator returned the group's offset (monotonic), or None after `seconds_max`."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        with (
            suppress(OSError, struct.error),
            socket.create_connection(("127.0.0.1", port), timeout=ATTEMPT_SECONDS_MAX) as connection,
        ):
            if _committed(connection, group, topic):
                return time.monotonic()
        time.sleep(PAUSE_S)
    return None
