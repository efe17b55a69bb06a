"""Random sequences of events of one partition; invariants are checked after each decision."""

from collections.abc import Sequence

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from partition_samples import PARTITION, TOPIC_ID, brokers

from barnabas_broker.metadata.controller.decisions.elections import ElectionType, Rules, decide_election
from barnabas_broker.metadata.controller.decisions.fencing import (
    IsrChange,
    begin_incarnation,
    counts_on,
    decide_isr_change,
    decide_reassignment,
    remove_fenced,
    resign,
)
from barnabas_broker.metadata.model import NO_LEADER, PartitionState
from barnabas_core.errors import ApiError
from harness.soak import size

BROKERS = [1, 2, 3, 4]
a_broker = st.sampled_from(BROKERS)


class PartitionLife(RuleBasedStateMachine):
    """One partition in random sequences of all events.

    `complete` are the brokers that have all committed records; only the brokers in sync at the commit are certain to
    have them. Only an unclean election may lose committed records, or the return of a failed log when no other
    replica has more records.
    """

    @initialize(
        replicas=st.lists(a_broker, min_size=1, max_size=4, unique=True), min_isr=st.integers(1, 3), dirs=st.booleans()
    )
    def create(self, replicas: list[int], min_isr: int, dirs: bool) -> None:
        self.registered = brokers(*BROKERS)
        self.min_isr = min_isr
        self.state = PartitionState(
            tuple(replicas), replicas[0], 0, tuple(replicas), log_dirs=tuple(f"/{r}" for r in replicas) if dirs else ()
        )
        self.complete = set(replicas)

    @property
    def current_rules(self) -> Rules:
        return Rules(self.registered, self.min_isr)

    def become(self, after: PartitionState, *, unclean: bool = False, lost: Sequence[int] = ()) -> None:
        """Check and apply a decision. The records of the brokers in `lost` are lost, or unusable."""
        before, self.state = self.state, after
        if after is before:
            return
        assert after.partition_epoch > before.partition_epoch
        assert (after.leader_epoch > before.leader_epoch) == (after.leader_epoch != before.leader_epoch)
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        if after.leader_epoch > before.leader_epoch and after.leader != NO_LEADER:
            last_resort = unclean or ({*before.isr, *before.elr} <= set(lost) and after.leader in lost)
            if last_resort and after.leader not in self.complete:
                self.complete = {after.leader}
            assert after.leader in self.complete

    def change(self, broker: int, **fields: object) -> None:
        self.registered = self.registered | {broker: msgspec.structs.replace(self.registered[broker], **fields)}

    @rule(broker=a_broker)
    def dies(self, broker: int) -> None:
        self.change(broker, fenced=True)

    @rule(broker=a_broker)
    def stops(self, broker: int) -> None:
        self.change(broker, is_shutting_down=True)

    @rule()
    def controller_settles(self) -> None:
        self.become(remove_fenced(self.state, self.current_rules))

    @rule(broker=a_broker, lacks=st.booleans())
    def lives_again(self, broker: int, lacks: bool) -> None:
        epoch = self.registered[broker].broker_epoch + 10
        self.change(broker, fenced=True, is_shutting_down=False, broker_epoch=epoch)
        if lacks:
            self.complete.discard(broker)
        if broker in self.state.replicas:
            self.become(begin_incarnation(self.state, broker, lacks, self.current_rules))
        self.change(broker, fenced=False)

    @precondition(lambda self: self.state.leader != NO_LEADER)
    @rule(members=st.sets(a_broker))
    def leader_proposes(self, members: set[int]) -> None:
        isr = {each: self.registered[each].broker_epoch for each in members | {self.state.leader}}
        change = IsrChange(PARTITION, TOPIC_ID, self.state.leader_epoch, self.state.partition_epoch, isr)
        try:
            after = decide_isr_change(self.state, change, self.current_rules)
        except ApiError:
            return
        self.complete |= set(change.isr)  # The leader adds only replicas that have caught up.
        self.become(after)

    @precondition(
        lambda self: self.state.leader != NO_LEADER and self.current_rules.suffices(self.state.isr, self.state.replicas)
    )
    @rule()
    def records_are_committed(self) -> None:
        self.complete &= set(self.state.isr)

    @rule(wanted=st.none() | st.lists(a_broker, max_size=4))
    def is_reassigned(self, wanted: list[int] | None) -> None:
        try:
            after = decide_reassignment(self.state, wanted, self.current_rules)
        except ApiError:
            return
        assert wanted is None or set(wanted) <= set(after.replicas)
        self.become(after)

    @rule(election=st.sampled_from(ElectionType))
    def leaders_are_elected(self, election: ElectionType) -> None:
        try:
            after = decide_election(self.state, election, self.current_rules)
        except ApiError:
            return
        self.become(after, unclean=election is ElectionType.UNCLEAN)

    @rule(broker=a_broker)
    def log_fails(self, broker: int) -> None:
        """Let a log fail. It does not return before the metadata contains the failure; then it may lack records."""
        failed_epoch = self.state.leader_epoch
        after = resign(self.state, broker, failed_epoch, self.current_rules)
        if not counts_on(after, broker, failed_epoch):
            self.complete.discard(broker)
            self.become(after, lost=[broker])

    @rule(min_isr=st.integers(1, 3))
    def min_isr_is_altered(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.become(remove_fenced(self.state, self.current_rules))

    @invariant()
    def is_sound(self) -> None:
        now = self.state
        assert now.leader == NO_LEADER or now.leader in now.isr
        assert len(set(now.replicas)) == len(now.replicas) > 0
        assert {*now.isr, *now.elr, *now.adding_replicas, *now.removing_replicas} <= set(now.replicas)
        assert not set(now.isr) & set(now.elr)
        assert not now.log_dirs or len(now.log_dirs) == len(now.replicas)
        assert set(now.isr) <= self.complete
        assert set(now.elr) <= self.complete
        assert not now.elr or not self.current_rules.suffices(now.isr, now.replicas)
        assert set(now.lacking) <= set(now.replicas) - {*now.isr, *now.elr}

    def teardown(self) -> None:
        """Check that there is a leader, or a loss to accept, once all brokers are alive again."""
        if not hasattr(self, "state"):
            return
        for broker in BROKERS:
            self.lives_again(broker, False)
        self.controller_settles()
        if self.state.leader == NO_LEADER:
            assert not self.state.isr
            assert not self.state.elr
            assert self.state.last_known_leader in self.state.lacking
            self.leaders_are_elected(ElectionType.UNCLEAN)
        assert self.state.leader != NO_LEADER
        assert not self.state.lacking or self.state.isr


PartitionLife.TestCase.settings = settings(max_examples=size(40, 1_000), stateful_step_count=25)
TestPartitionLife = PartitionLife.TestCase
