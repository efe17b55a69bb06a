"""One group whose five members join and leave, and checks when all faults are healed."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Final, NamedTuple

from simulation.clients import Client, Failed
from simulation.cluster import SimulatedCluster
from simulation.epoch_members import EpochHistory, EpochMember
from simulation.group_history import GroupHistory
from simulation.group_members import Member
from simulation.history import History
from simulation.mixed_members import CooperativeMember, MixedHistory

GROUP_ID: Final = "members"
SETTLE_S_MAX: Final = 60.0
LEADERLESS: Final = float("inf")
"""The end of a partition without a leader, which nobody knows."""


class Protocols(Enum):
    """The protocols of the members: one of both, or each incarnation another one, so that the group migrates."""

    CLASSIC = 0
    CONSUMER = 1
    MIXED = 2


_HISTORIES: Final[Mapping[Protocols, Callable[[str, str, History], GroupHistory]]] = {
    Protocols.CLASSIC: GroupHistory,
    Protocols.CONSUMER: EpochHistory,
    Protocols.MIXED: MixedHistory,
}
CLASSIC_SHARE: Final = 0.7
"""The share of classic members in a group that migrates, so that often all of its members are classic."""


class Habit(NamedTuple):
    """The behaviour of a consumer over its incarnations."""

    name: str
    life_s: float
    """The average life before it ends."""
    leaves: bool = True
    """True if it leaves the group at its end."""
    instance_id: str | None = None


HABITS: Final = (
    Habit("m0", 3),
    Habit("m1", 6),
    Habit("m2", 12),
    Habit("m3", 4, leaves=False),
    Habit("s0", 4, leaves=False, instance_id="static"),
)


class Lives:
    """A consumer over its incarnations: each ends by leaving the group, or by a silent crash."""

    def __init__(
        self,
        make_client: Callable[[], Client],
        make_member: Callable[[Client], Member],
        habit: Habit,
    ) -> None:
        self._make_client = make_client
        self._make_member = make_member
        self._habit = habit
        self._settles = asyncio.Event()

    def settle(self) -> None:
        """Make the current incarnation, or the next one, the last."""
        self._settles.set()

    async def run(self) -> None:
        """Run until this is cancelled, in a task of no machine."""
        while True:
            client = self._make_client()
            random = client.random
            member = self._make_member(client)
            task = asyncio.get_running_loop().create_task(member.run(), context=client.host.context)
            try:
                await self._until(random.expovariate(1 / self._habit.life_s))
                if self._settles.is_set():
                    await task
            finally:
                task.cancel()
            if self._habit.leaves:
                with suppress(Failed):
                    await member.leave()
            await self._until(random.expovariate(1))

    async def _until(self, seconds: float) -> None:
        """Wait this long, or until it is to settle."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settles.wait()


class ConsumerGroup:
    """All consumers of the group, on one topic."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        history: History,
        make_client: Callable[[str], Client],
        topic: str,
        partitions: int,
        protocols: Protocols = Protocols.CLASSIC,
    ) -> None:
        self._cluster = cluster
        self._history = _HISTORIES[protocols](GROUP_ID, topic, history)
        self._make_client = make_client
        self._topic = topic
        self._partitions = partitions
        self._lives = [self._life(habit) for habit in self._habits(protocols)]
        self._tasks: list[asyncio.Task[None]] = []

    def _habits(self, protocols: Protocols) -> Sequence[Habit]:
        """Return all habits; with member epochs only some, so that a member often has several partitions."""
        if protocols is Protocols.CLASSIC:
            return HABITS
        random = self._make_client("habits").random
        return random.sample(HABITS, random.randint(2, len(HABITS)))

    def _life(self, habit: Habit) -> Lives:
        return Lives(
            lambda: self._make_client(habit.name), lambda client: self._member(client, habit.instance_id), habit
        )

    def _member(self, client: Client, instance_id: str | None) -> Member:
        if isinstance(self._history, EpochHistory):
            is_classic = isinstance(self._history, MixedHistory) and client.random.random() < CLASSIC_SHARE
            kind = CooperativeMember if is_classic else EpochMember
            return kind(client, self._history, self._topic, self._partitions, instance_id)
        return Member(client, self._history, self._topic, self._partitions, instance_id)

    def start(self) -> None:
        """Start all consumers."""
        self._tasks = [asyncio.get_running_loop().create_task(each.run()) for each in self._lives]

    async def settle(self) -> None:
        """Wait, without faults and departures, until every partition has an owner and is read and committed.

        If every replica lacks committed records, that needs an administrator who accepts the loss meanwhile.
        """
        for each in self._lives:
            each.settle()
        end_s = self._cluster.loop.time() + SETTLE_S_MAX
        while (why := self._why_behind()) is not None and self._cluster.loop.time() < end_s:
            await asyncio.sleep(0.1)
        for task in self._tasks:
            task.cancel()
        if why is not None:
            self._history.violation(f"it is stuck: {why}")

    def _why_behind(self) -> str | None:
        owners = self._history.owners()
        if len(owners) < self._partitions:
            return f"generation {self._history.generation} has the owners {owners}"
        for partition in range(self._partitions):
            committed, end = self._history.committed_offset(partition), self._end_offset(partition)
            is_behind = max(0, committed) < end  # An empty partition gets no commits.
            if is_behind and (end == LEADERLESS or self._history.is_accountable(partition)):
                return f"{committed} of {end} is committed for {partition}"
        return None

    def _end_offset(self, partition: int) -> float:
        here = [each for broker in self._cluster.brokers for each in broker.partitions() if each.leader is not None]
        ends = [each.log.log_end_offset for each in here if each.topic_partition == (self._topic, partition)]
        return max(ends, default=LEADERLESS)

    async def check_at_the_end(self) -> None:
        """Check that committed offsets are kept, and that acknowledged records have been read."""
        partitions = list(range(self._partitions))
        poller = self._member(self._make_client("look"), None)
        for _ in range(100):
            with suppress(Failed):
                await poller.committed_offsets(partitions)
                break
            await asyncio.sleep(0.1)
        else:
            self._history.violation("it is not served after all was mended")
        for partition in partitions:
            self._history.check_all_read(partition)
