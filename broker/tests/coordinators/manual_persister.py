"""A persister of share groups in memory, which can hold its answers back, and fail."""

from collections.abc import Callable, Sequence

from barnabas_broker.coordinators.share_state.persister import OnOutcomes, SharePersister
from barnabas_broker.coordinators.share_state.share_state import InitializeEntry, ReadEntry, ShareOutcome
from barnabas_core.errors import ErrorCode
from barnabas_core.topic_partition import TopicIdPartition

Stored = tuple[int, int]
"""A state epoch and a start offset."""


class ManualPersister(SharePersister):
    """The share coordinators of all share groups.

    `is_holding`: answers wait for `answer`. `failing` has the errors of partitions by their number.
    """

    def __init__(self) -> None:
        self.stored: dict[tuple[str, TopicIdPartition], Stored] = {}
        self.failing: dict[int, ErrorCode] = {}
        self.is_holding = False
        self.held: list[Callable[[], object]] = []

    def initialize(self, group_id: str, entries: Sequence[InitializeEntry], answer: OnOutcomes) -> None:
        def store(entry: InitializeEntry) -> ErrorCode:
            known = self.stored.get((group_id, entry.partition), (0, 0))
            if entry.state_epoch < known[0]:
                return ErrorCode.FENCED_STATE_EPOCH
            self.stored[group_id, entry.partition] = entry.state_epoch, entry.start_offset
            return ErrorCode.NONE

        by_partition = {entry.partition: entry for entry in entries}
        self._soon(list(by_partition), lambda each: store(by_partition[each]), answer)

    def delete(self, group_id: str, partitions: Sequence[TopicIdPartition], answer: OnOutcomes) -> None:
        def remove(partition: TopicIdPartition) -> ErrorCode:
            self.stored.pop((group_id, partition), None)
            return ErrorCode.NONE

        self._soon(partitions, remove, answer)

    def read_summary(self, group_id: str, entries: Sequence[ReadEntry], answer: OnOutcomes) -> None:
        def outcome(partition: TopicIdPartition) -> ShareOutcome:
            state_epoch, start_offset = self.stored.get((group_id, partition), (0, -1))
            return ShareOutcome(state_epoch=state_epoch, start_offset=start_offset, delivery_complete_count=0)

        answer({entry.partition: outcome(entry.partition) for entry in entries})

    def answer(self) -> None:
        """Answer all requests that are held back."""
        held, self.held = self.held, []
        for each in held:
            each()

    def starts(self, group_id: str) -> dict[int, int]:
        """Return the start offsets of a group by partition number, of all topics."""
        return {each.partition: start for (group, each), (_, start) in self.stored.items() if group == group_id}

    def _soon(
        self,
        partitions: Sequence[TopicIdPartition],
        change: Callable[[TopicIdPartition], ErrorCode],
        answer: OnOutcomes,
    ) -> None:
        def run() -> None:
            answer({each: ShareOutcome(self.failing.get(each.partition) or change(each)) for each in partitions})

        self.held.append(run)
        if not self.is_holding:
            self.answer()
