"""Members of consumer groups (KIP-848) as raw requests: real clients would cost the machine more than the broker.

A member does what Kafka's clients do: it sends a heartbeat after the interval that the last answer named, and at once
after its assignment changed. A heartbeat names the partitions that the member owns only if these have changed.
"""

import heapq
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any, Final
from uuid import UUID

from barnabas_broker.wire.messages import message_class
from barnabas_core.errors import ErrorCode
from bench.clients.job import NotRun
from harness.codec_client import Connection, filled

REBALANCE_MS: Final = 60_000
SECONDS_MAX: Final = 90.0
Place = tuple[UUID, int]
"""A partition of a topic."""
_AGAIN: Final = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class ConsumerMember:
    """One member, with what the last answer gave it."""

    def __init__(self, connection: Connection, group: str, name: str, subscription: Mapping[str, Any]) -> None:
        self._connection, self._group, self.name, self._subscription = connection, group, name, subscription
        self.epoch, self.interval_s = 0, 0.0
        self.owned: frozenset[Place] = frozenset()
        self._reported: frozenset[Place] | None = None
        self.is_running = True

    def beat(self) -> bool:
        """Send a heartbeat; return True if the assignment has changed, so that the next one is due at once."""
        self.begin_beat()
        return self.end_beat()

    def begin_beat(self) -> None:
        """Send a heartbeat, without waiting for its answer."""
        fields: dict[str, Any] = {"member_epoch": self.epoch}
        if self._reported != self.owned:
            by_topic: dict[UUID, list[int]] = {}
            for topic_id, number in sorted(self.owned):
                by_topic.setdefault(topic_id, []).append(number)
            owned = [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in by_topic.items()]
            fields["topic_partitions"], self._reported = owned, self.owned
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": REBALANCE_MS, **self._subscription}
        self._begin(fields)

    def end_beat(self) -> bool:
        """Wait for the answer to the heartbeat; return True if the assignment has changed."""
        answer = self._end()
        self.epoch, self.interval_s = answer.member_epoch, answer.heartbeat_interval_ms / 1000
        if answer.assignment is None:
            return False
        given = answer.assignment.topic_partitions
        found = frozenset((each.topic_id, number) for each in given for number in each.partitions)
        has_changed, self.owned = found != self.owned, found
        return has_changed

    def leave(self) -> None:
        """Leave the group."""
        self.is_running, self.owned = False, frozenset()
        self._begin({"member_epoch": -1})
        self._end()

    def _begin(self, fields: dict[str, Any]) -> None:
        own = {"group_id": self._group, "member_id": self.name}
        self._request = filled(message_class("ConsumerGroupHeartbeatRequest"), own | fields)
        self._connection.send(self._request, 1)

    def _end(self) -> Any:
        until_s = time.monotonic() + SECONDS_MAX
        while (answer := self._connection.receive("ConsumerGroupHeartbeat", 1)).error_code in _AGAIN:
            if time.monotonic() > until_s:
                raise NotRun(f"the coordinator answers {answer.error_code} for {SECONDS_MAX:.0f} s")
            time.sleep(0.05)
            self._connection.send(self._request, 1)
        if answer.error_code:
            raise NotRun(f"{self.name} is refused with {answer.error_code}: {answer.error_message}")
        return answer


class Fleet:
    """All members, whose heartbeats come in the order in which they are due."""

    def __init__(self, port: int, topic: str, partitions: int) -> None:
        self._port = port
        self._connections = [Connection(port)]
        self.members: list[ConsumerMember] = []
        self.lost: dict[Place, float] = {}
        """The partitions that a member had to give up since this was cleared, and when."""
        self.stopped_s = 0.0
        """The longest time that one of these had no owner."""
        self.partitions = partitions
        self._subscription = {"subscribed_topic_names": [topic]}
        self._due: list[tuple[float, int, ConsumerMember]] = []
        self._numbers = count()
        # The first search for a coordinator creates __consumer_offsets.
        self._connections[0].request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["first"]})

    def join(self, group: str, name: str) -> ConsumerMember:
        """Let a member of the topic of all join now."""
        member = ConsumerMember(self._connections[0], group, name, self._subscription)
        self.members.append(member)
        self._beat(member)
        return member

    def join_together(self, group: str, regexes: Mapping[str, str]) -> None:
        """Let members join at one time, each with its own connection; `regexes` has what each name subscribes to."""
        self._until_loaded(group)
        for name, regex in regexes.items():
            connection = Connection(self._port)
            self._connections.append(connection)
            self.members.append(ConsumerMember(connection, group, name, {"subscribed_topic_regex": regex}))
        for member in self.members:
            member.begin_beat()
        for member in self.members:
            self._ended(member, member.owned)

    def _until_loaded(self, group: str) -> None:
        def error() -> int:
            answer = self._connections[0].request("ConsumerGroupDescribe", 0, {"group_ids": [group]})
            return int(answer.groups[0].error_code)

        until_s = time.monotonic() + SECONDS_MAX
        while error() in _AGAIN:
            if time.monotonic() > until_s:
                raise NotRun(f"the coordinator is not ready after {SECONDS_MAX:.0f} s")
            time.sleep(0.05)

    def leave(self, member: ConsumerMember) -> None:
        """Let a member leave."""
        self._lose(member.owned)
        self.members.remove(member)
        member.leave()

    def die(self, member: ConsumerMember) -> None:
        """Let a member fall silent."""
        self._lose(member.owned)
        self.members.remove(member)
        member.is_running = False

    def _lose(self, places: Iterable[Place]) -> None:
        self.lost.update(dict.fromkeys(places, time.monotonic()))

    def _beat(self, member: ConsumerMember) -> None:
        member.begin_beat()
        self._ended(member, member.owned)

    def _ended(self, member: ConsumerMember, before: frozenset[Place]) -> None:
        is_due_at_once = member.end_beat()
        self._lose(before - member.owned)
        stopped = [time.monotonic() - self.lost[each] for each in (member.owned - before) & self.lost.keys()]
        self.stopped_s = max(self.stopped_s, *stopped, 0.0)
        due_s = time.monotonic() + (0 if is_due_at_once else member.interval_s)
        heapq.heappush(self._due, (due_s, next(self._numbers), member))

    def until(self, condition: Callable[[], bool]) -> float:
        """Send heartbeats as they are due until the condition is true; return the seconds that took. Raises NotRun."""
        begun_s = time.monotonic()
        while not condition():
            if time.monotonic() - begun_s > SECONDS_MAX:
                raise NotRun(f"the group has not settled within {SECONDS_MAX:.0f} s")
            due_s, _, member = self._due[0]
            now_s = time.monotonic()
            if due_s > now_s:
                time.sleep(due_s - now_s)
            heapq.heappop(self._due)
            if member.is_running:
                self._beat(member)
        return time.monotonic() - begun_s

    def rest(self, seconds: float) -> None:
        """Send heartbeats as they are due for so long."""
        end_s = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end_s)

    def consumes_all(self) -> bool:
        """True if each partition has an owner again."""
        return sum(len(each.owned) for each in self.members) == self.partitions

    def is_settled(self) -> bool:
        """True if each partition has an owner, and the shares are equal."""
        sizes = [len(each.owned) for each in self.members]
        return self.consumes_all() and max(sizes) - min(sizes) <= 1

    def close(self) -> None:
        """Close all connections; the members fall silent."""
        for connection in self._connections:
            connection.close()
