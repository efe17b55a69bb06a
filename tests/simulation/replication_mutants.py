"""Known mistakes of replication protocols, each put in by a patch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import msgspec

from barnabas_broker.coordinators.groups import coordinator
from barnabas_broker.coordinators.groups.group import Group, check_commit
from barnabas_broker.coordinators.groups.shard import GroupTables
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_broker.metadata.controller import controller, deletions
from barnabas_broker.metadata.controller.decisions import elections, fencing
from barnabas_broker.metadata.controller.decisions.elections import Rules
from barnabas_broker.metadata.controller.decisions.fencing import begin_incarnation
from barnabas_broker.metadata.documents import AnyDocument
from barnabas_broker.metadata.image.metadata_image import DocumentWrites, MetadataImage, writes_of
from barnabas_broker.metadata.model import BrokerRegistration, PartitionState
from barnabas_broker.replication.leader_replica import IsrChanges, LeaderReplica
from barnabas_broker.replication.partition import AppendWaits, Partition
from barnabas_broker.replication.record_log import RecordLog
from barnabas_broker.replication.replica_manager import ReplicaManager
from barnabas_broker.replication.replica_states import OfflinePartitions
from barnabas_broker.storage.logs.log import Log
from barnabas_broker.wire.framing import FileSlice
from barnabas_core.errors import ErrorCode
from simulation.clients import Producer

SLOW_WRITE_S: Final = 1.5


@contextmanager
def truncates_to_the_high_watermark() -> Iterator[None]:
    """As before KIP-101: who begins to follow cuts off all that it does not know to be committed."""
    apply = Partition.apply

    def mistaken(self: Partition, state: PartitionState) -> None:
        epoch = self.leader_epoch
        apply(self, state)
        if self.leader is None and self.leader_epoch != epoch:
            self.follower._truncate_to(self.log.high_watermark)

    with patch.object(Partition, "apply", mistaken):
        yield


@contextmanager
def joins_the_isr_before_the_epochs_start() -> Iterator[None]:
    """A follower is taken in whatever it has."""

    def mistaken(self: LeaderReplica, high_watermark: int) -> frozenset[int] | None:
        if self.pending_isr is not None:
            return None
        alive = {each for each, at in self.followers.items() if self._is_eligible(each, at.broker_epoch)}
        return self.isr | alive if alive - self.isr else None

    with patch.object(LeaderReplica, "isr_with_joining", mistaken):
        yield


@contextmanager
def acknowledges_before_the_high_watermark() -> Iterator[None]:
    """acks=all is answered when the leader has it."""
    wait = AppendWaits.wait

    def mistaken(
        self: AppendWaits, end_offset: int, done: Any, high_watermark: int, *, all_replicas: bool = True
    ) -> None:
        if all_replicas:
            self.commits.wait(-1, done)
            self.commits.committed(0)
        else:
            wait(self, end_offset, done, high_watermark, all_replicas=False)

    with patch.object(AppendWaits, "wait", mistaken):
        yield


@contextmanager
def counts_a_shrink_before_it_is_written() -> Iterator[None]:
    """The high watermark does not wait for who is proposed to leave. Writes are slow besides: else it rarely shows."""
    attempt = IsrChanges._attempt

    def mistaken(self: LeaderReplica) -> frozenset[int]:
        return self.isr if self.pending_isr is None else self.pending_isr

    async def slow(self: IsrChanges, *arguments: Any, **named: Any) -> Any:
        await self._sleep(SLOW_WRITE_S)
        return await attempt(self, *arguments, **named)

    with patch.object(LeaderReplica, "maximal_isr", property(mistaken)), patch.object(IsrChanges, "_attempt", slow):
        yield


@contextmanager
def commits_offsets_before_they_are_replicated() -> Iterator[None]:
    """The group coordinator answers when its own log has the record."""
    append = RecordLog.append

    def mistaken(self: RecordLog, partition: int, records: Any, done: Callable[[Any], object], *producer: Any) -> None:
        answers: list[object] = []
        append(self, partition, records, answers.append, *producer)
        done(answers[0] if answers else None)

    with patch.object(RecordLog, "append", mistaken):
        yield


@contextmanager
def elects_from_outside_the_isr() -> Iterator[None]:
    """Whoever lives, in the order of the replicas."""

    def mistaken(state: PartitionState) -> Iterator[Sequence[int]]:
        yield state.replicas

    with patch.object(elections, "_candidates", mistaken):
        yield


@contextmanager
def elects_a_replica_that_lacks_records() -> Iterator[None]:
    """As before: where all that had everything are gone, the last known leader leads with what it has."""
    candidates = elections._candidates

    def mistaken(state: PartitionState) -> Iterator[Sequence[int]]:
        yield from candidates(msgspec.structs.replace(state, lacking=()))

    with patch.object(elections, "_candidates", mistaken):
        yield


@contextmanager
def writes_without_compare_and_set() -> Iterator[None]:
    """A controller that is not one any more, or whose image is old, writes over what others decided."""

    def mistaken(key: str, document: AnyDocument | None, image: MetadataImage) -> DocumentWrites:
        decided = writes_of(key, document, image)
        return DocumentWrites(decided.new_parts, tuple(write._replace(expected_version=None) for write in decided.rest))

    with patch.object(deletions, "writes_of", mistaken):
        yield


@contextmanager
def keeps_the_leader_epoch() -> Iterator[None]:
    """An election does not begin a new epoch."""
    led_by = elections.led_by

    def mistaken(state: PartitionState, leader: int, rules: Any) -> PartitionState:
        return msgspec.structs.replace(led_by(state, leader, rules), leader_epoch=state.leader_epoch)

    with patch.object(elections, "led_by", mistaken), patch.object(fencing, "led_by", mistaken):
        yield


@contextmanager
def shows_what_is_not_committed() -> Iterator[None]:
    """Consumers read up to the log's end."""

    def mistaken(
        self: Partition, offset: int, length_max: int, offset_max: int, *, at_least_one_batch: bool
    ) -> FileSlice | None:
        return self.log.read(offset, length_max, self.log.log_end_offset, at_least_one_batch=at_least_one_batch)

    with patch.object(Partition, "read", mistaken):
        yield


@contextmanager
def followers_forget_the_producers() -> Iterator[None]:
    """Only leaders take note of sequence numbers: a retry after a failover is written twice."""
    append_fetched = Log.append_fetched

    def mistaken(self: Log, run: memoryview, headers: list[Any], high_watermark: int) -> None:
        append_fetched(self, run, [header._replace(producer_id=-1) for header in headers], high_watermark)

    with patch.object(Log, "append_fetched", mistaken):
        yield


@contextmanager
def trusts_a_disk_that_lost_power() -> Iterator[None]:
    """A broker that may lack records comes back as if it had them."""
    with patch("barnabas_broker.metadata.membership.membership.may_lack_records", lambda *_: False):
        yield


@contextmanager
def keeps_its_place_with_a_log_from_a_failed_disk() -> Iterator[None]:
    """Who comes back with what its disk has kept leads, and is in sync, as if nothing had happened."""
    look_after = ReplicaManager._reload

    def mistaken(self: ReplicaManager, partition: Partition) -> None:
        with patch("barnabas_broker.replication.replica_manager.counts_on", lambda *_: False):
            look_after(self, partition)

    with (
        patch.object(OfflinePartitions, "give_up", lambda *_: None),
        patch.object(ReplicaManager, "_reload", mistaken),
    ):
        yield


@contextmanager
def advances_with_too_few_in_sync() -> Iterator[None]:
    """Without KIP-966: a leader alone commits, though the replicas that left may be elected after it."""
    high_watermark = LeaderReplica.high_watermark
    advance = Partition._advance_high_watermark

    def mistaken(self: LeaderReplica, log_end_offset: int, isr_size_min: int, now_ms: int, lag_ms_max: int) -> int:
        return high_watermark(self, log_end_offset, 0, now_ms, lag_ms_max)

    def heedless(self: Partition, now_ms: int) -> None:
        state = self.state
        self.state = msgspec.structs.replace(state, elr=())
        advance(self, now_ms)
        self.state = state

    with (
        patch.object(LeaderReplica, "high_watermark", mistaken),
        patch.object(Partition, "_advance_high_watermark", heedless),
    ):
        yield


@contextmanager
def takes_commits_of_old_generations() -> Iterator[None]:
    """Whoever is a member may commit, though its partitions have another owner by now."""

    def mistaken(group: Group, member_id: str, instance_id: str | None, generation: int, now: Now) -> ErrorCode:
        return check_commit(group, member_id, instance_id, max(generation, group.generation), now)

    with patch.object(coordinator, "check_commit", mistaken):
        yield


@contextmanager
def forgets_the_members_in_a_failover() -> Iterator[None]:
    """The next coordinator knows the offsets only, and begins with the first generation again."""

    def mistaken(*_: object) -> Iterator[None]:
        yield

    with patch.object(GroupTables, "restore_groups", mistaken):
        yield


@contextmanager
def takes_any_incarnation_of_a_broker_into_the_isr() -> Iterator[None]:
    """As before KIP-903: what an earlier incarnation of a broker had fetched counts for the present one."""

    def is_eligible(self: ReplicaManager, broker_id: int, broker_epoch: int) -> bool:
        found = self._image.brokers.get(broker_id)
        return found is not None and not found.fenced and not found.is_shutting_down

    def complaint(registration: BrokerRegistration | None, broker_epoch: int, is_member: bool) -> str | None:
        return "is not alive" if registration is None or registration.fenced else None

    def begin(
        state: PartitionState, broker: int, may_lack_records: bool, rules: Rules, *, is_past: bool
    ) -> PartitionState:
        after = begin_incarnation(state, broker, may_lack_records, rules)
        return state if after.isr == state.isr and after.leader == state.leader else after

    with (
        patch.object(ReplicaManager, "_is_eligible", is_eligible),
        patch.object(fencing, "_complaint_about_isr", complaint),
        patch.object(controller, "begin_incarnation", begin),
    ):
        yield


@contextmanager
def nobody_produces() -> Iterator[None]:
    """No mistake of a broker: a run that shows nothing must not pass for one that finds nothing."""

    async def mistaken(self: Producer) -> None:
        """Does nothing."""

    with patch.object(Producer, "run", mistaken):
        yield
