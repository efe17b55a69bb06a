"""Known mistakes of groups with member epochs (KIP-848), each put in by a patch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.coordinators.groups import classic_members
from barnabas_broker.coordinators.groups.classic_members import Upgrade, upgraded
from barnabas_broker.coordinators.modern.group import ConsumerGroup, ModernGroup, ModernMember
from barnabas_broker.coordinators.modern.records import Current, Kind
from barnabas_broker.coordinators.modern.shard import ModernGroups
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.errors import ErrorCode


@contextmanager
def gives_partitions_that_others_still_have() -> Iterator[None]:
    """A member gets its target at once, and nobody waits for a revocation."""
    with patch.object(ConsumerGroup, "free", lambda _group, _member_id, _topic_id, numbers: numbers):
        yield


@contextmanager
def takes_commits_of_earlier_epochs() -> Iterator[None]:
    """A member may commit with any epoch that it has had."""
    check_commit = ConsumerGroup.check_commit

    def mistaken(self: ConsumerGroup, member_id: str, epoch: int, partitions: Any) -> None:
        member = self.members.get(member_id)
        check_commit(self, member_id, epoch if member is None else max(epoch, member.current.epoch), partitions)

    with patch.object(ConsumerGroup, "check_commit", mistaken):
        yield


@contextmanager
def frees_partitions_before_they_are_revoked() -> Iterator[None]:
    """A partition counts as free as soon as its owner is asked to revoke it."""
    set_current = ConsumerGroup.set_current

    def mistaken(self: ConsumerGroup, member_id: str, current: Current | None) -> None:
        set_current(self, member_id, current and current._replace(revoking={}))
        if current is not None:
            self.members[member_id].current = current

    with patch.object(ConsumerGroup, "set_current", mistaken):
        yield


@contextmanager
def fences_no_silent_member() -> Iterator[None]:
    """Members that send no heartbeats keep their partitions."""
    late = ModernGroup.late

    def mistaken(self: ModernGroup, now: Now) -> list[tuple[ModernMember, str]]:
        for member, _ in late(self, now):
            member.session_deadline_ms = self.expect(now.steady_ms + 1000)
            member.rebalance_deadline_ms = member.classic_deadline_ms = None
        return []

    with patch.object(ModernGroup, "late", mistaken):
        yield


@contextmanager
def answers_before_the_records_are_written() -> Iterator[None]:
    """A member is given an epoch and partitions that the next coordinator does not know of."""
    write = ModernGroups._write

    def mistaken(
        self: ModernGroups[Any, Any], group_id: str, records: Any, answer: Callable[[ErrorCode], object]
    ) -> None:
        write(self, group_id, records, lambda _: None)
        answer(ErrorCode.NONE)

    with patch.object(ModernGroups, "_write", mistaken):
        yield


@contextmanager
def upgrades_without_what_the_members_have() -> Iterator[None]:
    """Partitions of classic members count as free after the group has changed to the consumer protocol."""

    def mistaken(*arguments: Any) -> Upgrade:
        upgrade = upgraded(*arguments)
        for member_id, member in upgrade.group.members.items():
            upgrade.change.write(Kind.CURRENT, member_id, member.current._replace(assigned={}))
        return upgrade

    with patch.object(classic_members, "upgraded", mistaken):
        yield


@contextmanager
def tells_no_classic_member_to_rejoin() -> Iterator[None]:
    """Classic members of a consumer group never learn that they must give partitions up."""
    with patch.object(classic_members, "_must_rejoin", lambda *_: False):
        yield


SHOWN: Final = r"^group members: "
STUCK: Final = r"^group members: it is stuck"
Mutants = dict[Callable[[], AbstractContextManager[None]], str]
EPOCH_MUTANTS: Final[dict[str, Mutants]] = {
    "epochs": {
        gives_partitions_that_others_still_have: SHOWN,
        takes_commits_of_earlier_epochs: SHOWN,
        frees_partitions_before_they_are_revoked: SHOWN,
        fences_no_silent_member: STUCK,
        answers_before_the_records_are_written: SHOWN,
    },
    "migrations": {
        upgrades_without_what_the_members_have: SHOWN,
        tells_no_classic_member_to_rejoin: STUCK,
    },
}
"""The mistakes by workload."""
