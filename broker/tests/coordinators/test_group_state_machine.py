"""F41-F46: clients join, sync, leave, die and restart in any order, over a log that pauses, commits batch by batch,
refuses appends, and changes its leader with or without its pending batches. In all cases no client waits for ever,
no member gets the assignment of another, no acknowledged commit is lost, and only committed records are visible.
"""

from collections import Counter

from coordinator_world import Client, World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_broker.coordinators.groups.group import Group, GroupState
from barnabas_broker.coordinators.groups.messages import JoinedMember, decode
from barnabas_broker.coordinators.groups.shard import GroupTables
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from harness.soak import size

CONFIG = parse_broker_config({"group.initial.rebalance.delay.ms": "1000"})
LONG_MS = 20 * 60_000
GIVES_AN_ID = {ErrorCode.MEMBER_ID_REQUIRED}
START_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}
CLIENTS = st.integers(0, 4)


class Machine(RuleBasedStateMachine):
    """Five clients of one group, some of them static."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIG)
        self.clients = [Client(self.world, name, "S" if name == "s" else None) for name in "abcs"]
        self.clients.append(Client(self.world, "t", "S"))  # A second client with the same instance id.
        self.sent: Counter[str] = Counter()
        self.next_offset = 0
        self.commits: list[tuple[int, list[list[ErrorCode]]]] = []
        self.deletions_asked = 0
        self.deletions: list[ErrorCode] = []

    def waits(self, client: Client) -> bool:
        answered = len(client.joined) + len(client.synced)
        return self.sent[client.name] > answered

    def tables(self) -> GroupTables | None:
        """Return the tables if they are loaded."""
        loaded = self.world.coordinator.runtime.loaded()
        return loaded[0].tables if loaded else None

    def group(self) -> Group | None:
        tables = self.tables()
        return None if tables is None else tables.groups.get("readers")

    @rule(index=CLIENTS, topics=st.sampled_from([("flights",), ("flights", "weather")]), asks_for_id=st.booleans())
    def join(self, index: int, topics: tuple[str, ...], asks_for_id: bool) -> None:
        client = self.clients[index]
        if self.waits(client):
            return
        if client.heartbeat() in START_ANEW and (not client.joined or client.joined[-1].error not in GIVES_AN_ID):
            client.member_id = ""
        self.sent[client.name] += 1
        client.join(topics, requires_known_member_id=asks_for_id)

    @rule(index=CLIENTS)
    def sync(self, index: int) -> None:
        client = self.clients[index]
        if self.waits(client) or not client.joined or client.joined[-1].error is not ErrorCode.NONE:
            return
        joined = client.joined[-1]
        parts = {member.member_id: f"{joined.generation}:{_part_of(member)}" for member in joined.members}
        self.sent[client.name] += 1
        client.sync(**({} if joined.skip_assignment else parts))

    @rule(index=CLIENTS)
    def heartbeat(self, index: int) -> None:
        self.clients[index].heartbeat()

    @rule(who=st.sets(CLIENTS, min_size=1), rounds=st.integers(1, 6))
    def live_as_clients_do(self, who: set[int], rounds: int) -> None:
        """Join if required, sync for a new generation, else send heartbeats, for some seconds."""
        for _ in range(rounds):
            for index in sorted(who):
                self._react(index)
            self.world.timers.pass_time(0.7)

    def _react(self, index: int) -> None:
        client = self.clients[index]
        if self.waits(client):
            return
        answered = client.joined[-1].error if client.joined else None
        if answered in START_ANEW:
            client.member_id = ""
        if answered is not ErrorCode.NONE:
            self.join(index, ("flights",), asks_for_id=True)
        elif len(client.sync_asked) == 0 or client.sync_asked[-1][0] != client.generation:
            self.sync(index)
        elif client.heartbeat() not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            self.join(index, ("flights",), asks_for_id=True)

    @rule(index=CLIENTS)
    def leave(self, index: int) -> None:
        if self.clients[index].member_id and self.tables() is not None:
            self.clients[index].leave()

    @rule(index=CLIENTS)
    def commit(self, index: int) -> None:
        self.next_offset += 1
        self.commits.append((self.next_offset, self.clients[index].commit(("flights", 0, self.next_offset))))
        self.world.timers.pass_time()

    @rule(for_ms=st.sampled_from([10, 1_000, 4_000, 9_999, 30_000, 160_000]))
    def time_passes(self, for_ms: int) -> None:
        self.world.timers.pass_time(for_ms / 1000)

    @rule()
    def log_hesitates(self) -> None:
        self.world.log.holding = True

    @precondition(lambda self: self.world.log.holding)
    @rule()
    def log_goes_on(self) -> None:
        self.world.log.holding = False
        self.world.log.commit()
        self.world.timers.pass_time()

    @precondition(lambda self: self.world.log.holding)
    @rule()
    def log_commits_one_batch(self) -> None:
        self.world.log.commit(batches=1)
        self.world.timers.pass_time()

    @rule(refuses=st.sampled_from([None, None, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def log_refuses_or_takes_appends_again(self, refuses: ErrorCode | None) -> None:
        self.world.log.failing = refuses

    @rule()
    def the_group_is_deleted(self) -> None:
        self.deletions_asked += 1
        self.world.coordinator.delete_group("readers", self.deletions.append)
        self.world.timers.pass_time()

    @rule(index=st.integers(0, 14))
    def a_client_dies(self, index: int) -> None:
        """Restart a client; the responses to its requests are lost."""
        if index < len(self.clients):
            old = self.clients[index]
            self.clients[index] = Client(self.world, old.name, old.instance_id)
            self.sent[old.name] = 0

    @rule(kind=st.sampled_from(["", "", "", "", "crash", "elected again", "disk"]), survivors=st.integers(0, 3))
    def leadership_changes(self, kind: str, survivors: int) -> None:
        """Change the leader; `survivors` of the batches that are not committed are in the next leader's log."""
        if kind == "crash":
            self.world.crash(survivors)
        elif kind == "elected again":
            self.world.log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, survivors)
            self.world.elect()
        elif kind == "disk":
            self.world.log.fail(ErrorCode.KAFKA_STORAGE_ERROR, survivors)
            self.world.timers.pass_time()

    @invariant()
    def the_group_is_consistent(self) -> None:
        group = self.group()
        if group is None:
            return
        assert (group.leader in group.members) if group.members else True
        assert set(group.static_members.values()) <= group.members.keys()
        counted = Counter(protocol.name for member in group.members.values() for protocol in member.protocols)
        assert +group.protocol_counts == counted
        held = [protocol.metadata for member in group.members.values() for protocol in member.protocols]
        assert group.metadata_bytes == sum(map(len, held))
        assert group.pending_syncs <= group.members.keys()
        assert not group.pending_joins.keys() & group.members.keys()
        if group.state in (GroupState.EMPTY, GroupState.DEAD):
            assert not group.members
        assert (group.join_deadline is not None) == (group.state is GroupState.PREPARING_REBALANCE)
        first = group.first_deadline_ms()
        assert first is None or (group.wake_ms is not None and group.wake_ms <= first)

    @invariant()
    def everybody_gets_the_part_that_the_leader_of_its_generation_gave_it(self) -> None:
        for client in self.clients:
            for (generation, part), reply in zip(client.sync_asked, client.synced, strict=False):
                if reply.error is ErrorCode.NONE and reply.assignment:
                    assert reply.assignment.decode() == f"{generation}:{part}"

    @invariant()
    def the_tables_are_what_is_committed(self) -> None:
        tables = self.tables()
        if tables is None:
            return
        replayed = GroupTables()
        for key, value in self.world.log.committed(0):
            record = decode(key, value)
            assert record is not None
            replayed.apply(record)
        assert (tables.stored, tables.offsets) == (replayed.stored, replayed.offsets)

    @invariant()
    def nothing_acknowledged_is_lost(self) -> None:
        acknowledged = [offset for offset, answers in self.commits if answers == [[ErrorCode.NONE]]]
        if acknowledged and self.tables() is not None and not self.deletions_asked:
            assert self.clients[0].committed()["flights-0"] >= acknowledged[-1]

    def teardown(self) -> None:
        """Check that all waiting requests get a response, and that the group is empty after all sessions expired."""
        self.world.log.failing = None
        if self.world.log.holding:
            self.log_goes_on()
        self.world.timers.pass_time(LONG_MS / 1000)
        assert not any(self.waits(client) for client in self.clients)
        assert all(len(answers) == 1 for _, answers in self.commits)
        assert len(self.deletions) == self.deletions_asked
        group = self.group()
        assert group is None or (group.state is GroupState.EMPTY and not group.pending_joins)


def _part_of(member: JoinedMember) -> str:
    return member.instance_id or member.member_id


Machine.TestCase.settings = settings(max_examples=size(25, 600), stateful_step_count=60)
test_a_group_keeps_its_invariants_under_random_events = Machine.TestCase
