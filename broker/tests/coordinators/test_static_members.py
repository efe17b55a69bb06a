"""The coordinator of static members dies at any point. Each instance id has one client at a time, which obeys its
responses, so no member is ever fenced.
"""

from coordinator_world import Client, World
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.errors import ErrorCode
from harness.soak import size

CONFIG = parse_broker_config({"group.initial.rebalance.delay.ms": "1000"})
NAMES = ("A", "B", "C")
FENCED = ErrorCode.FENCED_INSTANCE_ID


class StaticClient:
    """Successive processes with one instance id: each joins without a member id, and keeps the one it receives."""

    def __init__(self, world: World, instance_id: str) -> None:
        self.world = world
        self.instance_id = instance_id
        self.errors: set[ErrorCode] = set()
        self.committing: list[list[ErrorCode]] = []
        self.start()

    def start(self) -> None:
        """Start a new process; responses to the previous one are lost."""
        self.client = Client(self.world, self.instance_id.lower(), self.instance_id)
        self.asked = 0
        self.synced_generation = -1

    @property
    def waits(self) -> bool:
        return self.asked > len(self.client.joined) + len(self.client.synced)

    def act(self) -> None:
        """Do the next step of a consumer: join, sync, or send a heartbeat."""
        if self.waits:
            return
        client = self.client
        if not client.joined or client.joined[-1].error is not ErrorCode.NONE:
            self.join()
        elif self.synced_generation != client.generation:
            self.sync()
        elif client.synced[-1].error is not ErrorCode.NONE:
            self.told(client.synced[-1].error)
            self.join()
        elif self.told(client.heartbeat()) not in (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR):
            self.join()

    def told(self, error: ErrorCode) -> ErrorCode:
        """Note the error, and forget the member id after UNKNOWN_MEMBER_ID; return the error."""
        self.errors.add(error)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.client.member_id = ""
        return error

    def join(self) -> None:
        if self.client.joined:
            self.told(self.client.joined[-1].error)
        self.asked += 1
        self.client.join()

    def sync(self) -> None:
        joined = self.client.joined[-1]
        self.asked += 1
        self.synced_generation = joined.generation
        self.client.sync(**{} if joined.skip_assignment else {each.member_id: "part" for each in joined.members})

    def commit(self) -> None:
        if not self.waits and self.client.member_id:
            self.committing = self.client.commit(("flights", 0, 1))

    def answers(self) -> set[ErrorCode]:
        """Return all errors that it received."""
        joined, synced = self.client.joined, self.client.synced
        replies = {reply.error for reply in joined} | {reply.error for reply in synced}
        return self.errors | replies | {error for some in self.committing for error in some}


def stable_together(world: World, *clients: Client) -> None:
    """Bring the clients into a stable generation; the first join waits for others."""
    for client in clients:
        client.join()
    world.timers.pass_time(2)
    parts = {client.member_id: client.name for client in clients}
    for client in clients:
        client.sync(**parts)
    assert all(client.heartbeat() is ErrorCode.NONE for client in clients)


class StaticMembers(RuleBasedStateMachine):
    """Three instance ids; the last writes of a coordinator that dies are lost or not."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIG)
        self.clients = {name: StaticClient(self.world, name) for name in NAMES}

    @rule(name=st.sampled_from(NAMES))
    def one_acts(self, name: str) -> None:
        self.clients[name].act()

    @rule(rounds=st.integers(1, 5))
    def all_go_on(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients.values():
                client.act()
            self.world.timers.pass_time(0.7)

    @rule(name=st.sampled_from(NAMES))
    def one_starts_anew(self, name: str) -> None:
        self.clients[name].start()

    @rule(name=st.sampled_from(NAMES))
    def one_commits(self, name: str) -> None:
        self.clients[name].commit()

    @rule(for_ms=st.sampled_from([10, 1_000, 9_999, 30_000]))
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

    @rule(error=st.sampled_from([None, ErrorCode.NOT_ENOUGH_REPLICAS]))
    def log_refuses(self, error: ErrorCode | None) -> None:
        self.world.log.failing = error

    @rule(survivors=st.integers(0, 2))
    def coordinator_dies(self, survivors: int) -> None:
        self.world.crash(survivors)

    @rule(survivors=st.integers(0, 2))
    def log_is_in_doubt(self, survivors: int) -> None:
        self.world.log.fail(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, survivors)
        self.world.timers.pass_time()

    @invariant()
    def nobody_is_fenced(self) -> None:
        for client in self.clients.values():
            assert FENCED not in client.answers()


def test_a_member_id_not_stored_before_a_crash_is_unknown_and_not_fenced() -> None:
    world = World(CONFIG)
    client, other = Client(world, "a", "A"), Client(world, "b", "B")
    stable_together(world, client, other)
    again = Client(world, "a", "A")
    other.join(topics=("flights", "weather"))
    again.join()
    assert again.joined[-1].error is ErrorCode.NONE, "the join gets its response before the assignment is stored"
    world.crash()
    assert again.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_first_client_is_fenced_after_a_failover_by_a_request_of_the_second() -> None:
    world = World(CONFIG)
    first, second = Client(world, "a", "A"), Client(world, "a", "A")
    stable_together(world, first)
    second.join()
    assert first.heartbeat() is FENCED
    world.crash()
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert second.heartbeat() is ErrorCode.NONE
    assert first.heartbeat() is FENCED


StaticMembers.TestCase.settings = settings(max_examples=size(40, 2_000), stateful_step_count=50)
test_a_static_member_that_obeys_its_responses_is_never_fenced = StaticMembers.TestCase
