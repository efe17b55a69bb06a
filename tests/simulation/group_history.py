"""What the members of one group were told, and whether it can be true: who owns what, and how far it has read."""

from typing import NamedTuple

from simulation.history import History


class Membership(NamedTuple):
    """One member in one generation. A static one is known by its instance, which outlives its member id (KIP-345)."""

    generation: int
    member_id: str
    instance_id: str | None

    @property
    def owner(self) -> str:
        """Who owns its partitions."""
        return self.instance_id or self.member_id


class GroupHistory:
    """Of one group that reads one topic; violations go where all others do. A `Seen` of its members' readers."""

    def __init__(self, group_id: str, topic: str, history: History) -> None:
        self.group_id = group_id
        self.topic = topic
        self.generation = -1
        """The highest in which anybody was assigned anything."""
        self._history = history
        self._owners: dict[tuple[int, int], str] = {}
        self._instances: dict[str, str] = {}
        self._committed: dict[int, int] = {}
        self._doubtful: dict[int, set[int]] = {}
        self._read: dict[int, set[int]] = {}

    def violation(self, what: str) -> None:
        """Something that must not be."""
        self._history.violation(f"group {self.group_id}: {what}")

    def is_told_lost(self, topic: str, partition: int) -> bool:
        """Whether that was told of a partition."""
        return self._history.is_told_lost(topic, partition)

    def is_accountable(self, partition: int) -> bool:
        """Whether what was read of it and committed for it has to be there: no loss was accepted."""
        return not (self.is_told_lost(self.topic, partition) or self._history.offsets_are_told_lost)

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """A member saw it."""
        self._history.read(topic, partition, offset, value)
        self._read.setdefault(partition, set()).add(offset)

    def assigned(self, member: Membership, partitions: list[int]) -> None:
        """A SyncGroup was answered: nobody else has these partitions in this generation."""
        self.generation = max(self.generation, member.generation)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        for partition in partitions:
            owner = self._owners.setdefault((member.generation, partition), member.owner)
            if owner != member.owner:
                self.violation(f"{owner} and {member.owner} both own {partition} in generation {member.generation}")

    def owners(self) -> dict[int, str]:
        """Who owns each partition in the last generation."""
        return {
            partition: owner for (generation, partition), owner in self._owners.items() if generation == self.generation
        }

    def is_stale(self, member: Membership) -> bool:
        """Whether what it commits from now on has to be refused."""
        if member.generation < self.generation:
            return True
        return member.instance_id is not None and self._instances.get(member.instance_id) != member.member_id

    def commit_accepted(self, member: Membership, *, was_stale: bool) -> None:
        """A member's commit was; `was_stale` before it was sent. (Heartbeats are blindly answered while it loads.)"""
        if was_stale:
            self.violation(f"a commit of {member} is accepted, in generation {self.generation}")

    def committed(self, partition: int, offset: int) -> None:
        """Somebody was told so."""
        self._committed[partition] = max(self.committed_offset(partition), offset)

    def in_doubt(self, partition: int, offset: int) -> None:
        """A commit without an answer: it may come to the coordinator late, after others."""
        self._doubtful.setdefault(partition, set()).add(offset)

    def committed_offset(self, partition: int) -> int:
        """The highest that anybody knows of, or -1."""
        return self._committed.get(partition, -1)

    def fetched(self, partition: int, found: int, at_least: int) -> None:
        """An OffsetFetch was answered; `at_least` was committed before it was sent."""
        if found >= at_least:
            self.committed(partition, found)
            return
        if found not in self._doubtful.get(partition, ()) and self.is_accountable(partition):
            self.violation(f"{at_least} was committed for {partition}, and {found} is there")
        self._committed[partition] = found

    def check_all_read(self, partition: int) -> None:
        """At the end every record that a producer was told of has been seen by some member, but for lost ones."""
        missed = self._history.acknowledged_offsets(self.topic, partition) - self._read.get(partition, set())
        if missed and not self.is_told_lost(self.topic, partition):
            self.violation(f"nobody read {len(missed)} of {self.topic}-{partition}, as {min(missed)}")
