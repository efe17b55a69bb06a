"""Members of consumer groups (KIP-848) as raw requests: real clients would cost the machine more than the broker.

A member does what Kafka's clients do: it sends a heartbeat in each interval, and at once after its assignment changed.
"""

import heapq
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from uuid import UUID

from barnabas_core.errors import ErrorCode
from bench.clients.job import NotRun
from harness.codec_client import Connection

REBALANCE_MS: Final = 60_000
SECONDS_MAX: Final = 90.0
_AGAIN: Final = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


class ConsumerMember:
    """One member, with what the last answer gave it."""

    def __init__(self, fleet: "Fleet", group: str, name: str) -> None:
        self._fleet, self._group, self.name = fleet, group, name
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.is_running = True

    def beat(self) -> bool:
        """Send a heartbeat; return True if the assignment has changed, so that the next one is due at once."""
        owned = [{"topic_id": self._fleet.topic_id, "partitions": sorted(self.owned)}] if self.owned else []
        fields: dict[str, Any] = {"member_epoch": self.epoch, "topic_partitions": owned}
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": [self._fleet.topic]}
        answer = self._send(fields)
        self.epoch = answer.member_epoch
        if answer.assignment is None:
            return False
        found = frozenset(number for each in answer.assignment.topic_partitions for number in each.partitions)
        has_changed, self.owned = found != self.owned, found
        return has_changed

    def leave(self) -> None:
        """Leave the group."""
        self.is_running, self.owned = False, frozenset()
        self._send({"member_epoch": -1})

    def _send(self, fields: dict[str, Any]) -> Any:
        until_s = time.monotonic() + SECONDS_MAX
        while True:
            own = {"group_id": self._group, "member_id": self.name}
            answer = self._fleet.connection.request("ConsumerGroupHeartbeat", 1, own | fields)
            if answer.error_code not in _AGAIN:
                break
            if time.monotonic() > until_s:
                raise NotRun(f"the coordinator answers {answer.error_code} for {SECONDS_MAX:.0f} s")
            time.sleep(0.05)
        if answer.error_code:
            raise NotRun(f"{self.name} is refused with {answer.error_code}: {answer.error_message}")
        return answer


class Fleet:
    """All members, whose heartbeats come in the order in which they are due."""

    def __init__(self, port: int, topic: str, partitions: int, interval_s: float) -> None:
        self.connection, self.topic = Connection(port), topic
        self.members: list[ConsumerMember] = []
        self.lost: set[int] = set()
        """The partitions that a member had to give up since `begin`."""
        self._partitions, self._interval_s = partitions, interval_s
        self._due: list[tuple[float, int, ConsumerMember]] = []
        self._numbers = count()
        # The first look for a coordinator creates __consumer_offsets.
        self.connection.request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": ["first"]})
        (found,) = self.connection.request("Metadata", 12, {"topics": [{"name": topic}]}).topics
        self.topic_id: UUID = found.topic_id

    def join(self, group: str, name: str) -> ConsumerMember:
        """Let a member join now."""
        member = ConsumerMember(self, group, name)
        self.members.append(member)
        self._beat(member)
        return member

    def leave(self, member: ConsumerMember) -> None:
        """Let a member leave."""
        self.lost |= member.owned
        self.members.remove(member)
        member.leave()

    def die(self, member: ConsumerMember) -> None:
        """Let a member fall silent."""
        self.lost |= member.owned
        self.members.remove(member)
        member.is_running = False

    def _beat(self, member: ConsumerMember) -> None:
        before = member.owned
        is_due_at_once = member.beat()
        self.lost |= before - member.owned
        due_s = time.monotonic() + (0 if is_due_at_once else self._interval_s)
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

    def consumes_all(self) -> bool:
        """True if each partition has an owner again."""
        return sum(len(each.owned) for each in self.members) == self._partitions

    def is_settled(self) -> bool:
        """True if each partition has an owner, and the shares are equal."""
        sizes = [len(each.owned) for each in self.members]
        return self.consumes_all() and max(sizes) - min(sizes) <= 1

    def close(self) -> None:
        """Close the connection; the members fall silent."""
        self.connection.close()
