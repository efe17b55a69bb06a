"""Members of a share group (KIP-932) as a test drives them, by the requests that clients send."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

from coordinator_world import World

from barnabas_broker.coordinators.modern.consumer_heartbeat import BeatReply
from barnabas_broker.coordinators.share.share_heartbeat import ShareBeat, ShareGroup
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicPartition

GROUP = "workers"


def group_of(world: World, group_id: str = GROUP) -> ShareGroup:
    return world.coordinator.share.group(group_id)


class Worker:
    """A client of the share protocol: it keeps its epoch and its partitions."""

    def __init__(self, world: World, name: str, topics: Collection[str] = ("jobs",)) -> None:
        self.world = world
        self.name = name
        self.topics = list(topics)
        self.epoch = 0
        self.assigned: dict[UUID, frozenset[int]] = {}
        self.replies: list[BeatReply] = []

    def send(self, **changes: Any) -> BeatReply | None:
        """Send a heartbeat with changes, and return the answer, None if there is none yet. The state stays."""
        beat = ShareBeat(GROUP, self.name, self.epoch, "client", "/127.0.0.1")._replace(**changes)
        count = len(self.replies)
        self.world.coordinator.share.beat(beat, self.replies.append)
        self.world.timers.pass_time()
        return self.replies[-1] if len(self.replies) > count else None

    def join(self, **changes: Any) -> BeatReply:
        self.epoch, self.assigned = 0, {}
        return self._take(self.send(**{"topic_names": self.topics, **changes}))

    def beat(self, **changes: Any) -> BeatReply:
        """Send a heartbeat as a client does, and take the partitions that it is given."""
        return self._take(self.send(**changes))

    def leave(self) -> BeatReply:
        reply = self.send(epoch=-1)
        assert reply is not None
        return reply

    def _take(self, reply: BeatReply | None) -> BeatReply:
        assert reply is not None
        if reply.error is ErrorCode.NONE:
            self.epoch = reply.epoch
            if reply.assignment is not None:
                self.assigned = {topic: frozenset(numbers) for topic, numbers in reply.assignment.items()}
        return reply

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions that the client has, of all topics."""
        return sorted(number for numbers in self.assigned.values() for number in numbers)


def alter(world: World, offsets: dict[TopicPartition, int]) -> tuple[ErrorCode, dict[TopicPartition, ErrorCode]]:
    """Set start offsets of the group; return the error, and those of partitions."""
    found: list[tuple[ErrorCode, dict[TopicPartition, ErrorCode]]] = []
    world.coordinator.share.alter_offsets(GROUP, offsets, lambda error, errors: found.append((error, dict(errors))))
    world.timers.pass_time()
    return found[0]


def delete_offsets(world: World, *topics: str) -> tuple[ErrorCode, dict[str, ErrorCode]]:
    """Delete the share state of topics of the group; return the error, and those of topics."""
    found: list[tuple[ErrorCode, dict[str, ErrorCode]]] = []
    world.coordinator.share.delete_offsets(GROUP, topics, lambda error, errors: found.append((error, dict(errors))))
    world.timers.pass_time()
    return found[0]


def delete_group(world: World) -> ErrorCode:
    found: list[ErrorCode] = []
    world.coordinator.delete_group(GROUP, found.append)
    world.timers.pass_time()
    return found[0]
