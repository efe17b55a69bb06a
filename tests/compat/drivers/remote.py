"""Clients in other languages: a child process that answers JSON requests, one per line."""

import json
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from drivers.interface import Assignment, Message, Received, with_group_protocol
from harness.deadline import PATIENCE_S
from harness.server_process import bound_to_us


class RemoteError(Exception):
    """The error that the client raised, as text."""


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _encode(message: Message) -> dict[str, Any]:
    headers = [[name, _hex(value)] for name, value in message.headers]
    places = {"partition": message.partition, "timestamp_ms": message.timestamp_ms}
    return {**places, "key": _hex(message.key), "value": _hex(message.value), "headers": headers}


def _decode(record: dict[str, Any]) -> Received:
    headers = tuple((name, _bytes(value)) for name, value in record.pop("headers"))
    return Received(key=_bytes(record.pop("key")), value=_bytes(record.pop("value")), headers=headers, **record)


class RemoteClient:
    """See `interface.Client`; `ask` reaches functions that only one language's driver has."""

    def __init__(self, name: str, command: Sequence[str], log_path: Path) -> None:
        self.name = name
        self._log_path = log_path
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                bound_to_us(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def ask(self, op: str, **arguments: object) -> Any:
        """Send one request, and return its answer; a driver that hangs is killed, which ends the wait."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        watchdog = threading.Timer(PATIENCE_S, self._process.kill)
        watchdog.start()
        try:
            line = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        if not line:
            raise RemoteError(f"{self.name} ended in {op}: {self._log_path.read_text(errors='replace')[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(answer["error"])
        return answer["result"]

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
        acks: str = "all",
        **options: object,
    ) -> None:
        encoded = [_encode(message) for message in messages]
        how = {"compression": compression, "idempotent": idempotent, "acks": acks}
        self.ask("produce", topic=topic, messages=encoded, **how, **options)

    def failures(self, topic: str, messages: Sequence[Message]) -> list[tuple[str, str] | None]:
        """Return class and message of the error of each message, or None if it was sent; Java only."""
        encoded = [_encode(message) for message in messages]
        return [each and (each[0], each[1]) for each in self.ask("failures", topic=topic, messages=encoded)]

    def read(self, topic: str, count: int, **options: object) -> list[Received]:
        return [_decode(record) for record in self.ask("read", topic=topic, count=count, **options)]

    def read_committed(self, topic: str, count: int) -> list[Received]:
        return self.read(topic, count, committed=True)

    def writer(self, transactional_id: str, **options: object) -> "RemoteWriter":
        return RemoteWriter(self, transactional_id, **options)

    def copy(self, transactional_id: str, group: str, source: str, target: str, count: int, *, commit: bool) -> None:
        places = {"group": group, "topic": source, "target": target, "config": with_group_protocol({})}
        self.ask("copy", transactional_id=transactional_id, **places, count=count, commit=commit)

    def join(
        self, group: str, member: str, topics: Sequence[str], *, config: Mapping[str, str] | None = None
    ) -> "RemoteMember":
        chosen = with_group_protocol(config or {})
        self.ask("join", group=group, member=member, topics=list(topics), config=chosen)
        return RemoteMember(self, member)

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return _by_partition(self.ask("committed", group=group, topic=topic))

    def offsets_for_time(self, topic: str, timestamp_ms: int) -> dict[int, int]:
        return _by_partition(self.ask("offsets_for_time", topic=topic, timestamp_ms=timestamp_ms))

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        self.ask("create_topic", topic=topic, partitions=partitions, configs=dict(configs))

    def create_partitions(self, topic: str, partitions: int) -> None:
        self.ask("create_partitions", topic=topic, partitions=partitions)

    def topics(self) -> dict[str, int]:
        return dict(self.ask("topics"))

    def topic_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self.ask("topic_configs", topic=topic))

    def alter_topic_config(self, topic: str, name: str, value: str) -> None:
        self.ask("alter_topic_config", topic=topic, name=name, value=value)

    def delete_topic(self, topic: str) -> None:
        self.ask("delete_topic", topic=topic)

    def close(self) -> None:
        """Close the input, which ends the driver."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _by_partition(offsets: dict[str, int]) -> dict[int, int]:
    return {int(partition): offset for partition, offset in offsets.items()}


class RemoteMember:
    """See `interface.Member`."""

    def __init__(self, client: RemoteClient, name: str) -> None:
        self._client = client
        self._name = name

    def _state(self) -> dict[str, Any]:
        state = self._client.ask("state", member=self._name)
        if state["failure"] is not None:
            raise RemoteError(f"{self._client.name}'s member {self._name}: {state['failure']}")
        return dict(state)

    def assignment(self) -> Assignment:
        return frozenset((topic, partition) for topic, partition in self._state()["assignment"])

    def records(self) -> list[Received]:
        return [_decode(record) for record in self._state()["records"]]

    @property
    def longest_gap_s(self) -> float:
        """Return the longest time between two polls that returned records; Java only."""
        return float(self._state()["longest_gap_s"])

    def commit(self) -> None:
        self._client.ask("commit", member=self._name)

    def leave(self) -> None:
        self._client.ask("leave", member=self._name)


class RemoteWriter:
    """See `interface.Writer`."""

    def __init__(self, client: RemoteClient, transactional_id: str, **options: object) -> None:
        self._client = client
        self._name = f"{transactional_id} {uuid4()}"
        self._client.ask("open_writer", writer=self._name, transactional_id=transactional_id, **options)

    def write(self, topic: str, messages: Sequence[Message]) -> None:
        encoded = [_encode(message) for message in messages]
        self._client.ask("write", writer=self._name, topic=topic, messages=encoded)

    def send(self, topic: str, message: Message) -> None:
        self._client.ask("send", writer=self._name, topic=topic, messages=[_encode(message)])

    def write_offset(self, group: str, topic: str, offset: int) -> None:
        self._client.ask("write_offset", writer=self._name, group=group, topic=topic, offset=offset)

    def end(self, *, commit: bool) -> None:
        self._client.ask("end", writer=self._name, commit=commit)

    def close(self) -> None:
        self._client.ask("close_writer", writer=self._name)
