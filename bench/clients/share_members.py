"""Members of share groups (KIP-932) as raw requests: real clients would cost the machine more than the broker."""

import selectors
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, Literal, Self
from uuid import UUID

from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.errors import ErrorCode
from bench.clients.job import NotRun
from harness.codec_client import Connection, filled

Way = Literal["each", "batch"]
"""How a member acknowledges: each record by a request of its own, or all of a batch with the next fetch."""
ACCEPT: Final = 1
FETCH_VERSION: Final = 1
DESCRIBE_VERSION: Final = 1
POLL_S: Final = 0.001
GROUP_RESOURCE: Final = 32
SECONDS_MAX: Final = 60.0
WAIT_MS: Final = 500
RECORDS_MAX: Final = {"each": 32, "batch": 500}
"""The records of a fetch: those that are acknowledged one by one must be finished before their locks run out."""
BYTES_MAX: Final = 1 << 20
BATCH_RECORDS: Final = 16
_AGAIN: Final = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class ShareMember:
    """A member with a connection and a share session of its own, which reads one partition."""

    def __init__(self, port: int, group: str, name: str, topic: str, topic_id: UUID) -> None:
        self.connection: Final = Connection(port)
        self._own: Final = {"group_id": group, "member_id": name}
        self._topic, self._topic_id = topic, topic_id
        self._epoch = 0
        self.acquired = 0
        """The number of records that the member has got."""
        self._ranges: list[tuple[int, int]] = []
        self._sent = ""
        self.is_waiting = False
        """True if a request is under way."""

    @property
    def holds_records(self) -> bool:
        """True if the member has records to acknowledge, or waits for the answer to a ShareAcknowledge."""
        return bool(self._ranges) or (self.is_waiting and self._sent == "ShareAcknowledge")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def join(self) -> None:
        """Send heartbeats until the partition is assigned. Raises NotRun."""
        until_s, epoch = time.monotonic() + SECONDS_MAX, 0
        while time.monotonic() < until_s:
            names = [self._topic] if epoch == 0 else None
            fields = {**self._own, "member_epoch": epoch, "subscribed_topic_names": names}
            answer = self.connection.request("ShareGroupHeartbeat", 1, fields)
            if answer.error_code in _AGAIN:
                time.sleep(0.05)
                continue
            if answer.error_code:
                raise NotRun(f"ShareGroupHeartbeat is refused with {answer.error_code}: {answer.error_message}")
            epoch = answer.member_epoch
            if answer.assignment is not None and answer.assignment.topic_partitions:
                return
            time.sleep(0.05)
        raise NotRun(f"no partition is assigned to a member within {SECONDS_MAX:.0f} s")

    def fetch(self, way: Way = "batch", wait_ms: int = WAIT_MS) -> None:
        """Send a fetch, with the acknowledgement of what the member holds."""
        sizes = {"max_records": RECORDS_MAX[way], "batch_size": RECORDS_MAX[way], "max_bytes": BYTES_MAX}
        fields = {"max_wait_ms": wait_ms, "min_bytes": 1, **sizes}
        self._send("ShareFetch", fields, self._ranges)
        self._ranges = []

    def acknowledge_one(self) -> None:
        """Send the acknowledgement of the first record that the member holds."""
        first, last = self._ranges.pop(0)
        if first < last:
            self._ranges.insert(0, (first + 1, last))
        self._send("ShareAcknowledge", {}, [(first, first)])

    def acknowledge_all(self) -> None:
        """Send the acknowledgement of all records that the member holds."""
        ranges, self._ranges = self._ranges, []
        self._send("ShareAcknowledge", {}, ranges)

    def go_on(self, way: Way, *, more: bool) -> None:
        """Send the next request. Without `more` records it is no fetch, which would wait for them."""
        if way == "each" and self._ranges:
            self.acknowledge_one()
        elif more:
            self.fetch(way)
        elif self._ranges:
            self.acknowledge_all()

    def receive(self) -> int:
        """Receive the answer; return the number of acquired records. Raises NotRun if the broker refuses."""
        api, self.is_waiting = self._sent, False
        answer = self.connection.receive(api, FETCH_VERSION)
        partitions = [part for topic in answer.responses for part in topic.partitions]
        codes = [answer.error_code, *(part.error_code for part in partitions)]
        if api == "ShareFetch":
            codes += [part.acknowledge_error_code for part in partitions]
            got = [(each.first_offset, each.last_offset) for part in partitions for each in part.acquired_records]
            self._ranges += got
            self.acquired += sum(last - first + 1 for first, last in got)
        if any(codes):
            raise NotRun(f"{api} is refused with {codes}")
        return sum(last - first + 1 for first, last in self._ranges)

    def _send(self, api: str, fields: dict[str, Any], ranges: Sequence[tuple[int, int]]) -> None:
        batches = [{"first_offset": a, "last_offset": b, "acknowledge_types": [ACCEPT]} for a, b in ranges]
        partition = {"partition_index": 0, "acknowledgement_batches": batches}
        topics = [{"topic_id": self._topic_id, "partitions": [partition]}] if batches or self._epoch == 0 else []
        fields = {**self._own, "share_session_epoch": self._epoch, "topics": topics, **fields}
        self._epoch += 1
        self.is_waiting = True
        self._sent = api
        self.connection.send(filled(message_class(f"{api}Request"), fields), FETCH_VERSION)


class ShareFleet:
    """Members of one group over one topic with one partition, and a connection for all other requests."""

    def __init__(self, port: int, topic: str) -> None:
        self.port, self.topic = port, topic
        self._open: Final = ExitStack()
        self.connection: Final = self._open.enter_context(Connection(port))
        metadata = self.connection.request("Metadata", 12, {"topics": [{"name": topic}]})
        self._topic_id: UUID = metadata.topics[0].topic_id
        self.connection.request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["first"]})
        self.members: list[ShareMember] = []
        self._written = 0

    def begin_at_earliest(self, group: str) -> None:
        """Let a group begin at the first record."""
        change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [change]}
        answer = self.connection.request("IncrementalAlterConfigs", 1, {"resources": [resource]})
        if answer.responses[0].error_code:
            raise NotRun(f"the config is refused: {answer.responses[0].error_message}")

    def join(self, group: str) -> ShareMember:
        """Let a member join, and begin its session."""
        number = len(self.members) + 1
        name = b64encode(number.to_bytes(15)).decode()
        member = self._open.enter_context(ShareMember(self.port, group, name, self.topic, self._topic_id))
        self.members.append(member)
        member.join()
        return member

    def produce(self, records: int, size_bytes: int) -> None:
        """Write records in batches of BATCH_RECORDS, or one record."""
        left = records
        while left > 0:
            in_batch = min(BATCH_RECORDS, left)
            data = bytes(
                encode_batch([Record(n, int(time.time() * 1000), None, bytes(size_bytes)) for n in range(in_batch)])
            )
            part = {"index": 0, "records": data}
            topics = [{"name": self.topic, "partition_data": [part]}]
            fields = {"acks": -1, "timeout_ms": 30_000, "topic_data": topics}
            answer = self.connection.request("Produce", 9, fields)
            if answer.responses[0].partition_responses[0].error_code:
                raise NotRun(f"Produce is refused with {answer.responses[0].partition_responses[0].error_code}")
            left -= in_batch
            self._written += in_batch

    def work_off(self, group: str, records: int, way: Way) -> float:
        """Let all members work until so many records are finished in all; return the seconds that took.

        The broker is asked for them at the end, because a fetch that carries acknowledgements waits for other records.
        """
        begun_s = time.monotonic()
        with selectors.DefaultSelector() as ready:
            for each in self.members:
                ready.register(each.connection, selectors.EVENT_READ, each)
                if not each.is_waiting:
                    each.fetch(way)
            while (more := self._acquired < records) or self._hold_records or self.finished(group) < records:
                if time.monotonic() - begun_s > SECONDS_MAX:
                    raise NotRun(f"only {self._acquired:,} of {records:,} records after {SECONDS_MAX:.0f} s")
                for key, _ in ready.select(1.0 if more or self._hold_records else POLL_S):
                    member: ShareMember = key.data
                    member.receive()
                    member.go_on(way, more=self._acquired < records)
        return time.monotonic() - begun_s

    def rest(self) -> None:
        """Receive the answers of all fetches that wait, so that nobody takes what is written next."""
        for each in self.members:
            if each.is_waiting:
                each.receive()

    @property
    def _acquired(self) -> int:
        return sum(each.acquired for each in self.members)

    @property
    def _hold_records(self) -> bool:
        return any(each.holds_records for each in self.members)

    def finished(self, group: str) -> int:
        """Return the number of records that are acknowledged and stored, as the coordinator reports it."""
        fields = {"groups": [{"group_id": group, "topics": [{"topic_name": self.topic, "partitions": [0]}]}]}
        answer = self.connection.request("DescribeShareGroupOffsets", DESCRIBE_VERSION, fields)
        lag: int = answer.groups[0].topics[0].partitions[0].lag
        return 0 if lag < 0 else self._written - lag

    def close(self) -> None:
        """Close all connections, which ends the sessions."""
        self._open.close()
