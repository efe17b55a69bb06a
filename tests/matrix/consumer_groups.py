"""A consumer group (KIP-848): heartbeats by member, epoch, owned partitions and fields, and the requests of others."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from matrix.cells import Cell, Difference, Subject
from matrix.consumer_group_world import ALL, FIRST, LAST, MEMBERS, OTHER, SHARED, STATES, TIMEOUT_MS, ConsumerWorld
from matrix.group_world import subscription
from matrix.groups import SAME
from matrix.nodes import Nodes
from matrix.talk import WAITS, Broker

HEARTBEAT: Final = "ConsumerGroupHeartbeat"


class Ask(NamedTuple):
    """A request to a group: its title, its version, and its fields in a world."""

    title: str
    name: str
    version: int
    fields: Callable[[ConsumerWorld], Mapping[str, Any]]
    of_group: bool = True
    """True if the request has the field `group_id`."""

    def cell(self, state: str) -> Cell:
        """Return the cell of the request in a state."""
        return Cell(state, f"{self.name} v{self.version}", self.title)


def _ask(nodes: Nodes) -> Iterator[tuple[Cell, str]]:
    for topic, partitions in ((SHARED, len(ALL)), (OTHER, 2)):
        nodes.create_topic(topic, partitions)
    found = nodes.ask("Metadata", 12, topics=[{"name": SHARED}, {"name": OTHER}])
    topic_ids = {each.name: each.topic_id for each in found.topics}
    with closing(Broker(nodes.port, nodes.patience_s)) as broker:
        for state in STATES:
            asked = [(each.cell(state), each) for each in _requests(state) if nodes.asks(each.cell(state))]
            yield from _in_state(lambda: ConsumerWorld(broker, nodes.fresh("group"), topic_ids), state, asked)


def _in_state(
    make: Callable[[], ConsumerWorld], state: str, asked: Sequence[tuple[Cell, Ask]]
) -> Iterator[tuple[Cell, str]]:
    """Yield the outcomes of a state's cells. A group that a cell has not changed serves the next cell."""
    world, before = None, ""
    for cell, request in asked:
        if world is None:
            world = make()
            STATES[state](world)
            before = world.state()
        answer, after = _outcome(world, request)
        yield cell, f"{answer} -> {SAME if after == before else after}"
        # An accepted request may change what nothing shows, such as the previous epoch.
        if after != before or answer == WAITS or "error_code" not in answer:
            world = None


def _outcome(world: ConsumerWorld, request: Ask) -> tuple[str, str]:
    """Return the answer to a request, and then what clients see of the group."""
    own = {"group_id": world.group} if request.of_group else {}
    pending = world.begin(request.name, request.version, {**own, **request.fields(world)})
    answer = world.broker.settled(pending) if request.name in ("JoinGroup", "SyncGroup") else pending.answer()
    if answer is not None and getattr(answer, "member_id", "") not in {None, *world.ids.values()}:
        world.ids["new"] = answer.member_id
    if answer is not None and request.name == "ListGroups":
        answer.groups = [each for each in answer.groups if each.group_id == world.group]
    text, state = world.words(answer, request.version), world.state()
    pending.close()
    return text, state


def _requests(state: str) -> Iterator[Ask]:
    yield from _joins(state)
    for who in ("nobody", *MEMBERS[state]):
        yield from _beats(who)
    for who in MEMBERS[state].replace("C", ""):
        yield from _changes(who)
    if state in ("static A", "static A is away"):
        yield from _static_beats()
    yield from _of_offsets(state)
    yield from _of_classic_members(state)
    yield from _of_groups()


def _joins(state: str) -> Iterator[Ask]:
    def join(title: str, who: str = "N", version: int = 1, **fields: Any) -> Ask:
        return Ask(title, HEARTBEAT, version, lambda world: world.joining(who, **fields))

    yield join("N joins")
    yield join("N joins with iN", instance_id="iN")
    yield join("N joins with iA", instance_id="iA")
    yield join("no id joins", "none", 0)
    yield join("no id joins", "none")
    if state not in ("unknown", "Stable, A", "classic C"):
        return
    yield join("N joins without a timeout", rebalance_timeout_ms=-1)
    yield join("N joins without partitions", topic_partitions=None)
    yield join("N joins without topics", subscribed_topic_names=None)
    yield join("N joins for no topics", subscribed_topic_names=[])
    yield join("N joins for absent topics", subscribed_topic_names=["absent"])
    yield join("N joins for two topics", subscribed_topic_names=[SHARED, OTHER])
    yield join("N joins for a topic twice", subscribed_topic_names=[SHARED, SHARED])
    yield Ask("N joins with partitions", HEARTBEAT, 1, lambda it: it.joining("N", topic_partitions=it.owned(0)))
    for title, fields in _FIELDS.items():
        yield join(f"N joins with {title}", **fields)


_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "an empty instance id": {"instance_id": ""},
    "an empty rack": {"rack_id": ""},
    "a rack": {"rack_id": "r1"},
    "range": {"server_assignor": "range"},
    "an unknown assignor": {"server_assignor": "sticky"},
    "an empty assignor": {"server_assignor": ""},
    "an invalid expression": {"subscribed_topic_regex": "("},
    "an empty expression": {"subscribed_topic_regex": ""},
    "a timeout of 0": {"rebalance_timeout_ms": 0},
}


def _beat(title: str, who: str, step: int | None = 0, epoch: int = 0, **fields: Any) -> Ask:
    """Return a heartbeat with an epoch, or, with a step, one relative to that of the member's last answer."""

    def of(world: ConsumerWorld) -> Mapping[str, Any]:
        own = {**fields, "topic_partitions": world.owned(*fields["numbers"])} if "numbers" in fields else fields
        at = epoch if step is None else world.epochs.get(who, 2) + step
        return world.beating(who, at, **{name: value for name, value in own.items() if name != "numbers"})

    return Ask(title, HEARTBEAT, 1, of)


def _beats(who: str) -> Iterator[Ask]:
    """Yield heartbeats by epoch and owned partitions; `own epoch +0` is that of the member's last answer."""
    for epoch in (-3, -2, -1, 1):
        yield _beat(f"{who}, epoch {epoch}", who, None, epoch)
    for step in (-1, 0, 1):
        title = f"{who}, own epoch {step:+}"
        yield _beat(title, who, step)
        for numbers in ((), (0,), FIRST, LAST, ALL) if who != "nobody" else ():
            yield _beat(f"{title}, owns {list(numbers)}", who, step, numbers=numbers)
    yield Ask(f"{who} joins again", HEARTBEAT, 1, lambda world: world.joining(who))
    other = {"subscribed_topic_names": [OTHER]}
    yield Ask(f"{who} joins again, other topic", HEARTBEAT, 1, lambda world: world.joining(who, **other))


def _changes(who: str) -> Iterator[Ask]:
    """Yield heartbeats of a member with its epoch that change something."""
    timeless = {title: fields for title, fields in _FIELDS.items() if "rebalance_timeout_ms" not in fields}
    changed: dict[str, Mapping[str, Any]] = {
        **timeless,
        "no topics": {"subscribed_topic_names": []},
        "another topic": {"subscribed_topic_names": [OTHER]},
        "one topic more": {"subscribed_topic_names": [SHARED, OTHER]},
        "the same topics": {"subscribed_topic_names": [SHARED]},
        "the instance id iX": {"instance_id": "iX"},
        "all fields": {"rebalance_timeout_ms": TIMEOUT_MS, "subscribed_topic_names": [SHARED], "numbers": ALL},
    }
    for title, fields in changed.items():
        yield _beat(f"{who} with {title}", who, **fields)


def _static_beats() -> Iterator[Ask]:
    for who, instance in (("N", "iA"), ("A", None), ("A", "iX"), ("N", "iX")):
        yield Ask(f"{who}/{instance} joins", HEARTBEAT, 1, partial(_joining, who, {"instance_id": instance}))
        for epoch in (-2, -1, 2):
            yield _beat(f"{who}/{instance}, epoch {epoch}", who, None, epoch, instance_id=instance)
    changes: dict[str, Mapping[str, Any]] = {
        "for another topic": {"subscribed_topic_names": [OTHER]},
        "with range": {"server_assignor": "range"},
    }
    for title, fields in changes.items():
        yield Ask(f"N/iA joins {title}", HEARTBEAT, 1, partial(_joining, "N", {"instance_id": "iA", **fields}))


def _joining(who: str, fields: Mapping[str, Any], world: ConsumerWorld) -> Mapping[str, Any]:
    return world.joining(who, **fields)


def _of_offsets(state: str) -> Iterator[Ask]:
    """Yield commits and reads of offsets by member and epoch."""
    topics = [{"name": SHARED, "partitions": [{"partition_index": 2, "committed_offset": 2}]}]
    wanted = [{"name": SHARED, "partition_indexes": [0]}]
    for who in ("none", "nobody", *MEMBERS[state]):
        for step in (None, -1, 0, 1):
            title = f"{who}, no epoch" if step is None else f"{who}, own epoch {step:+}"
            for version in (8, 9):
                yield Ask(title, "OffsetCommit", version, partial(_committing, who, step, {"topics": topics}))
            yield Ask(title, "OffsetFetch", 9, partial(_fetching, who, step, wanted), of_group=False)
    for name in (SHARED, OTHER):
        deleted = {"topics": [{"name": name, "partitions": [{"partition_index": 0}]}]}
        yield Ask(f"of {name}", "OffsetDelete", 0, partial(_same, deleted))


def _epoch(who: str, step: int | None, world: ConsumerWorld) -> int:
    return -1 if step is None else world.epochs.get(who, 2) + step


def _committing(who: str, step: int | None, fields: Mapping[str, Any], world: ConsumerWorld) -> Mapping[str, Any]:
    own = {"member_id": world.ids[who], "group_instance_id": world.instances.get(who)}
    return {**own, "generation_id_or_member_epoch": _epoch(who, step, world), **fields}


def _fetching(who: str, step: int | None, topics: Any, world: ConsumerWorld) -> Mapping[str, Any]:
    member = {"member_id": world.ids[who] or None, "member_epoch": _epoch(who, step, world)}
    return {"groups": [{"group_id": world.group, "topics": topics, **member}]}


def _same(fields: Mapping[str, Any], _: ConsumerWorld) -> Mapping[str, Any]:
    return fields


def _of_classic_members(state: str) -> Iterator[Ask]:
    """Yield the requests of the classic protocol, also of members that have the consumer protocol."""
    other = {"protocols": [{"name": "other", "metadata": subscription(SHARED)}]}
    for title, fields in (("", {}), (", other protocol", other), (", no consumer", {"protocol_type": "connect"})):
        for version in (3, 5):
            own = {"member_id": "", **fields}
            yield Ask(f"a new one{title}", "JoinGroup", version, partial(_classic_joining, own))
    for who in ("nobody", *MEMBERS[state]):
        for step in (-1, 0, 1):
            title = f"{who}, generation {step:+}"
            yield Ask(title, "Heartbeat", 4, partial(_of_generation, who, step))
            yield Ask(title, "SyncGroup", 3, partial(_of_generation, who, step))
        yield Ask(f"{who} joins again", "JoinGroup", 5, partial(_rejoining, who))
        yield Ask(who, "LeaveGroup", 5, partial(_leaving, who))


def _classic_joining(fields: Mapping[str, Any], world: ConsumerWorld) -> Mapping[str, Any]:
    return world.classic_fields(**fields)


def _rejoining(who: str, world: ConsumerWorld) -> Mapping[str, Any]:
    return world.classic_fields(member_id=world.ids[who])


def _of_generation(who: str, step: int, world: ConsumerWorld) -> Mapping[str, Any]:
    return {"member_id": world.ids[who], "generation_id": world.epochs.get(who, 2) + step}


def _leaving(who: str, world: ConsumerWorld) -> Mapping[str, Any]:
    return {"members": [{"member_id": world.ids[who], "group_instance_id": world.instances.get(who)}]}


def _of_groups() -> Iterator[Ask]:
    for version in (5, 6):
        yield Ask("all", "DescribeGroups", version, lambda world: {"groups": [world.group]}, of_group=False)
    for version in (0, 1):
        described = "ConsumerGroupDescribe"
        yield Ask("all", described, version, lambda world: {"group_ids": [world.group]}, of_group=False)
    yield Ask("all", "DeleteGroups", 2, lambda world: {"groups_names": [world.group]}, of_group=False)
    for types in ([], ["classic"], ["Consumer"]):
        fields = {"types_filter": types}
        yield Ask(f"types {types}", "ListGroups", 5, partial(_same, fields), of_group=False)


NOBODY_READS: Final = "a client without a member id has no epoch; Apache Kafka fails with a NullPointerException"
DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference("* | OffsetFetch v9 | none, own epoch *", "*UNKNOWN_MEMBER_ID*", NOBODY_READS),
    Difference(
        "* | JoinGroup v5 | A joins again",
        "* -> classic PreparingRebalance *",
        "a group whose members are all classic is a classic group; Kafka waits until one leaves",
    ),
    Difference(
        "static A is away | ConsumerGroupHeartbeat v1 | A/iX joins",
        "*partitions=[[]0, *",
        "Kafka leaves a member that is back with another instance id without its partitions",
    ),
)
SUBJECTS: Final = (Subject("consumer-groups", _ask, DIFFERENCES),)
