"""Known mistakes of groups with member epochs (KIP-848), each put in by a patch."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker.coordinators.modern.consumer_group import ConsumerGroup


@contextmanager
def gives_partitions_that_others_still_have() -> Iterator[None]:
    """A member gets its target at once, and nobody waits for a revocation."""
    with patch.object(ConsumerGroup, "is_free", lambda *_: True):
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


SHOWN: Final = r"^group members: "
EPOCH_MUTANTS: Final[dict[Callable[[], AbstractContextManager[None]], str]] = {
    gives_partitions_that_others_still_have: SHOWN,
    takes_commits_of_earlier_epochs: SHOWN,
}
