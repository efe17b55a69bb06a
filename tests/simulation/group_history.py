"""The responses to the members of one group, and checks whether they are possible: owners and committed offsets."""

from typing import NamedTuple

from simulation.history import History


class Membership(NamedTuple):
    """One member in one generation. A static one is known by its instance, which outlives its member id (KIP-345)."""

    generation: int
    member_id: str
    instance_id: str | None

    @property
    def owner(self) -> str:
        """Return the owner of its partitions."""
        return self.instance_id or self.member_id


class GroupHistory:
    """The history of one group that reads one topic. It is a `Seen` of its members' readers."""

    def __init__(self, group_id: str, topic: str, history: History) -> None:
        self.group_id = group_id
        self.topic = topic
        self.generation = -1
        """The highest generation with an assignment."""
        self._history = history
        self._owners: dict[tuple[int, int], str] = {}
        self._instances: dict[str, str] = {}
        self._committed: dict[int, int] = {}
        self._doubtful: dict[int, set[int]] = {}
        self._read: dict[int, set[int]] = {}

    def violation(self, what: str) -> None:
        """Note a violation."""
        self._history.violation(f"group {self.group_id}: {what}")

    def is_told_lost(self, topic: str, partition: int) -> bool:
        """True if a loss was accepted for the partition."""
        return self._history.is_told_lost(topic, partition)

    def is_accountable(self, partition: int) -> bool:
        """True if records and commits of the partition must be kept: no loss was accepted."""
        return not (self.is_told_lost(self.topic, partition) or self._history.offsets_are_told_lost)

    def read(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Note that a member read a record."""
        self._history.read(topic, partition, offset, value)
        self._read.setdefault(partition, set()).add(offset)

    def assigned(self, member: Membership, partitions: list[int]) -> None:
        """Note an assignment: no other member may have these partitions in this generation."""
        self.generation = max(self.generation, member.generation)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member.member_id
        for partition in partitions:
            owner = self._owners.setdefault((member.generation, partition), member.owner)
            if owner != member.owner:
                self.violation(f"{owner} and {member.owner} both own {partition} in generation {member.generation}")

    def owners(self) -> dict[int, str]:
        """Return the owner of each partition in the last generation."""
        return {
            partition: owner for (generation, partition), owner in self._owners.items() if generation == self.generation
        }

    def is_stale(self, member: Membership) -> bool:
        """True if later commits of the member must be refused."""
        if member.generation < self.generation:
            return True
        return member.instance_id is not None and self._instances.get(member.instance_id) != member.member_id

    def commit_accepted(self, member: Membership, *, was_stale: bool) -> None:
        """Note an accepted commit; `was_stale` is from before it was sent. (Heartbeats succeed while groups load.)"""
        if was_stale:
            self.violation(f"a commit of {member} is accepted, in generation {self.generation}")

    def committed(self, partition: int, offset: int) -> None:
        """Note that a commit was acknowledged."""
        self._committed[partition] = max(self.committed_offset(partition), offset)

    def in_doubt(self, partition: int, offset: int) -> None:
        """Note a commit without a response: it may reach the coordinator late, after others."""
        self._doubtful.setdefault(partition, set()).add(offset)

    def committed_offset(self, partition: int) -> int:
        """Return the highest offset that is known to be committed, or -1."""
        return self._committed.get(partition, -1)

    def fetched(self, partition: int, found: int, at_least: int) -> None:
        """Note a response to OffsetFetch; `at_least` was committed before the request."""
        if found >= at_least:
            self.committed(partition, found)
            return
        if found not in self._doubtful.get(partition, ()) and self.is_accountable(partition):
            self.violation(f"{at_least} was committed for {partition}, and {found} is there")
        self._committed[partition] = found

    def check_all_read(self, partition: int) -> None:
        """Check at the end that some member has read every acknowledged record, except lost ones."""
        missed = self._history.acknowledged_offsets(self.topic, partition) - self._read.get(partition, set())
        if missed and not self.is_told_lost(self.topic, partition):
            self.violation(f"nobody read {len(missed)} of {self.topic}-{partition}, as {min(missed)}")
