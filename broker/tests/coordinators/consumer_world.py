"""Members of a consumer group (KIP-848) as a test drives them, by the requests that clients send."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from coordinator_world import World

from barnabas_broker.coordinators.modern.consumer_heartbeat import Beat, BeatReply
from barnabas_broker.coordinators.modern.group import ConsumerGroup
from barnabas_core.errors import ErrorCode

GROUP = "readers"


def group_of(world: World, group_id: str = GROUP) -> ConsumerGroup:
    return world.coordinator.describe_consumer_group(group_id)


class Consumer:
    """A client of the consumer protocol: it keeps its epoch and its partitions, and gives up what it must."""

    def __init__(
        self, world: World, name: str, topics: Collection[str] = ("flights",), instance_id: str | None = None
    ) -> None:
        self.world = world
        self.name = name
        self.topics = list(topics)
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.replies: list[BeatReply] = []

    def send(self, **changes: Any) -> BeatReply | None:
        """Send a heartbeat with changes, and return the answer, None if there is none yet. The state stays."""
        count = len(self.replies)
        self.begin(**changes)
        self.world.timers.pass_time()
        return self.replies[-1] if len(self.replies) > count else None

    def begin(self, **changes: Any) -> None:
        """Send a heartbeat with changes, and let no turn of the loop pass."""
        beat = Beat(
            GROUP, self.name, self.epoch, "client", "/127.0.0.1", instance_id=self.instance_id, owned=self.owned
        )._replace(**changes)
        self.world.coordinator.beat(beat, 1, self.replies.append)

    def join_and_wait(self) -> None:
        """Send a first heartbeat whose answer has to wait: no turn of the loop passes."""
        self.begin(topic_names=self.topics, rebalance_timeout_ms=60_000)

    def join(self, **changes: Any) -> BeatReply:
        self.epoch, self.owned = 0, {}
        first = {"topic_names": self.topics, "rebalance_timeout_ms": 60_000, "owned": {}}
        return self._take(self.send(**{**first, **changes}))

    def beat(self, **changes: Any) -> BeatReply:
        """Send a heartbeat as a client does: it says what it owns, and then owns what it is given."""
        return self._take(self.send(**changes))

    def leave(self, epoch: int = -1) -> BeatReply:
        reply = self.send(epoch=epoch, owned=None)
        assert reply is not None
        return reply

    def _take(self, reply: BeatReply | None) -> BeatReply:
        assert reply is not None
        if reply.error is ErrorCode.NONE:
            self.epoch = reply.epoch
            if reply.assignment is not None:
                self.owned = {topic: frozenset(numbers) for topic, numbers in reply.assignment.items()}
        return reply

    @property
    def numbers(self) -> list[int]:
        """The numbers of the partitions that the client owns, of all topics."""
        return sorted(number for numbers in self.owned.values() for number in numbers)


def settle(*members: Consumer, rounds: int = 4) -> None:
    """Let all members send heartbeats in turn, until each has its target."""
    for _ in range(rounds):
        for member in members:
            member.beat()


def numbers(assignment: Mapping[UUID, Collection[int]] | None) -> list[int] | None:
    """Return the numbers of the partitions of all topics; None if the answer has no assignment."""
    return None if assignment is None else sorted(number for each in assignment.values() for number in each)
