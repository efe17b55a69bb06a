"""The requests to a classic group in each state, by member, instance id, generation and protocol."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from matrix.group_states import OF_OFFSETS_ONLY, STATIC, WITH_MEMBERS, WITH_PENDING_ID
from matrix.group_world import CONSUMER, IDLE, RANGE, READ, TIMEOUT_MS, GroupWorld, subscription


class Request(NamedTuple):
    """A request to a group: its title, its version, and its fields in a world."""

    title: str
    name: str
    version: int
    fields: Callable[[GroupWorld], Mapping[str, Any]]
    of_group: bool = True
    """True if the request has the field `group_id`."""

    @property
    def may_wait(self) -> bool:
        """True if a broker may leave the request without an answer for a while."""
        return self.name in ("JoinGroup", "SyncGroup")

    def changes_ids(self, answer: str) -> bool:
        """True if the request may have given or taken back a pending member id, which nothing shows."""
        return "MEMBER_ID_REQUIRED" in answer or (self.name == "LeaveGroup" and self.title.startswith("P"))


def requests(state: str) -> Iterator[Request]:
    """Yield the requests that are sent in a state."""
    if state not in OF_OFFSETS_ONLY:
        yield from _joins(state)
        yield from _syncs(state)
        yield from _leaves(state)
    for who, instance, shift in _identities(state):
        yield from _of_member(who, instance, shift, versions=who == "A" and instance is None)
    if state not in STATIC | {"Completing, B waits"}:
        yield from _of_offsets()
        yield from _of_groups()


def _identities(state: str) -> Iterator[tuple[str, str | None, int | None]]:
    """Yield members with instance ids and generations: None is -1, and numbers are relative to the current one."""
    if state in OF_OFFSETS_ONLY:
        yield "none", None, None
    elif state in STATIC:
        yield from _static_identities(state)
    elif state != "Completing, B waits":
        yield from _dynamic_identities(state)


def _static_identities(state: str) -> Iterator[tuple[str, str | None, int | None]]:
    for who in ("none", "unknown", "A"):
        for instance in ("iA", "iB"):
            yield who, instance, 0
    yield "none", "iA", None
    yield "A", "iA", -1
    yield "A", "iX", 0
    yield "A", None, 0


def _dynamic_identities(state: str) -> Iterator[tuple[str, str | None, int | None]]:
    for shift in (None, 0):
        yield "none", None, shift
        yield "unknown", None, shift
        if state in WITH_PENDING_ID:
            yield "P", None, shift
    yield "none", "iX", None
    if state == "Empty":
        yield "unknown", None, -1
    if state in WITH_MEMBERS:
        for shift in (None, -1, 0, 1):
            yield "A", None, shift
        yield "B", None, 0
        yield "A", "iX", 0


def _whose(who: str, instance: str | None) -> str:
    return who + ("" if instance is None else f"/{instance}")


def _at(shift: int | None) -> str:
    return "no generation" if shift is None else {-1: "old", 0: "current", 1: "future"}[shift] + " generation"


def _generation(world: GroupWorld, shift: int | None) -> int:
    return -1 if shift is None else world.generation + shift


def _of_member(who: str, instance: str | None, shift: int | None, *, versions: bool) -> Iterator[Request]:
    title = f"{_whose(who, instance)}, {_at(shift)}"

    def identity(world: GroupWorld) -> dict[str, Any]:
        return {"member_id": world.ids[who], "group_instance_id": instance}

    def generation(world: GroupWorld) -> dict[str, Any]:
        return identity(world) | {"generation_id": _generation(world, shift)}

    def commit(world: GroupWorld) -> dict[str, Any]:
        return identity(world) | {"generation_id_or_member_epoch": _generation(world, shift), "topics": [_offset(2)]}

    def txn_commit(world: GroupWorld) -> dict[str, Any]:
        id_, epoch = world.producer()
        of = {"transactional_id": world.group, "producer_id": id_, "producer_epoch": epoch}
        return commit(world) | of

    yield Request(title, "Heartbeat", 4, generation)
    yield Request(title, "SyncGroup", 5, lambda world: generation(world) | {"protocol_type": None})
    yield Request(title, "OffsetCommit", 9, commit)
    yield Request(title, "TxnOffsetCommit", 5, txn_commit)
    if versions or (who == "none" and instance is None):
        yield Request(title, "OffsetCommit", 2, commit)
    if versions and shift in (0, 1):
        yield Request(title, "Heartbeat", 0, generation)


def _offset(offset: int, name: str = READ) -> dict[str, Any]:
    return {"name": name, "partitions": [{"partition_index": 0, "committed_offset": offset}]}


def _join(title: str, who: str, version: int, instance: str | None = None, **fields: Any) -> Request:
    def of(world: GroupWorld) -> dict[str, Any]:
        timeouts = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        own = {"member_id": world.ids[who], "protocol_type": CONSUMER, "protocols": [RANGE]}
        return timeouts | own | ({} if instance is None else {"group_instance_id": instance}) | fields

    return Request(f"{_whose(who, instance)}{title}", "JoinGroup", version, of)


OTHER_PROTOCOL: Final = {"name": "other", "metadata": subscription(READ)}
CHANGED: Final = {"name": "range", "metadata": subscription(READ, IDLE)}
_CHANGES: Final[Mapping[str, Mapping[str, Any]]] = {
    ", another protocol type": {"protocol_type": "connect"},
    ", no protocol type": {"protocol_type": ""},
    ", another protocol": {"protocols": [OTHER_PROTOCOL]},
    ", no protocol": {"protocols": []},
    ", changed": {"protocols": [CHANGED]},
    ", one protocol more": {"protocols": [RANGE, OTHER_PROTOCOL]},
    ", session too short": {"session_timeout_ms": 1},
    ", session too long": {"session_timeout_ms": 2_000_000},
}


def _joins(state: str) -> Iterator[Request]:
    for version in (0, 2, 4, 9):
        yield _join("", "none", version)
    yield _join("", "unknown", 2)
    yield _join("", "unknown", 9)
    yield _join("", "none", 9, "iX")
    yield _join("", "unknown", 9, "iX")
    for title, fields in _CHANGES.items():
        yield _join(title, "none", 9, **fields)
    if state in WITH_PENDING_ID:
        yield _join("", "P", 9)
        yield _join("", "P", 9, "iX")
        yield _join(", another protocol", "P", 9, protocols=[OTHER_PROTOCOL])
    if state not in WITH_MEMBERS:
        return
    for who in ("A", "B"):
        own = f"i{who}" if state in STATIC else None
        yield _join("", who, 9, own)
        for title in (", changed", ", another protocol", ", another protocol type", ", one protocol more"):
            yield _join(title, who, 9, own, **_CHANGES[title])
    yield _join("", "A", 0)
    yield _join("", "A", 9, "iX")
    if state in STATIC:
        for who, instance in (("none", "iA"), ("none", "iB"), ("unknown", "iA"), ("A", "iB"), ("B", "iA")):
            yield _join("", who, 9, instance)
        yield _join("", "A", 9)
        for who in ("iA", "iB"):
            yield _join("", "none", 5, who)
            yield _join(", changed", "none", 9, who, protocols=[CHANGED])
            yield _join(", another protocol", "none", 9, who, protocols=[OTHER_PROTOCOL])


def _syncs(state: str) -> Iterator[Request]:
    if state not in WITH_MEMBERS:
        return

    def of(who: str, **fields: Any) -> Callable[[GroupWorld], Mapping[str, Any]]:
        return lambda world: world.identity(who) | {"generation_id": world.generation, **fields}

    for who in ("A", "B"):
        yield Request(f"{who}, protocol named", "SyncGroup", 5, of(who, protocol_type=CONSUMER, protocol_name="range"))
        yield Request(
            f"{who}, another protocol type", "SyncGroup", 5, of(who, protocol_type="connect", protocol_name="range")
        )
        yield Request(
            f"{who}, another protocol", "SyncGroup", 5, of(who, protocol_type=CONSUMER, protocol_name="other")
        )
        yield Request(f"{who}, with assignments", "SyncGroup", 3, _assigning(who, "A", "B"))
        yield Request(f"{who}, with an assignment of A", "SyncGroup", 3, _assigning(who, "A"))
        yield Request(f"{who}, with an assignment of nobody", "SyncGroup", 3, _assigning(who, "unknown"))


def _assigning(who: str, *to: str) -> Callable[[GroupWorld], Mapping[str, Any]]:
    return lambda world: (
        world.identity(who)
        | {
            "generation_id": world.generation,
            "assignments": [{"member_id": world.ids[each], "assignment": b"new"} for each in to],
        }
    )


def _leave(*members: tuple[str, str | None]) -> Request:
    def of(world: GroupWorld) -> dict[str, Any]:
        return {"members": [{"member_id": world.ids[who], "group_instance_id": instance} for who, instance in members]}

    return Request(" and ".join(_whose(*each) for each in members), "LeaveGroup", 5, of)


def _leaves(state: str) -> Iterator[Request]:
    yield _leave(("unknown", None))
    yield _leave(("none", None))
    yield _leave(("none", "iX"))
    yield _leave()
    whose = ["unknown"]
    if state in WITH_PENDING_ID:
        yield _leave(("P", None))
        yield _leave(("P", "iX"))
        whose.append("P")
    if state in WITH_MEMBERS:
        yield _leave(("A", None))
        yield _leave(("B", None))
        yield _leave(("A", None), ("B", None))
        yield _leave(("A", None), ("unknown", None))
        yield _leave(("A", None), ("A", None))
        yield _leave(("A", "iX"))
        whose.append("A")
    if state in STATIC:
        for each in (("none", "iA"), ("none", "iB"), ("A", "iA"), ("A", "iB"), ("unknown", "iA")):
            yield _leave(each)
    for who in whose:
        yield Request(who, "LeaveGroup", 0, partial(_member_id, who))


def _member_id(who: str, world: GroupWorld) -> dict[str, str]:
    return {"member_id": world.ids[who]}


def _with(fields: Mapping[str, Any], _: GroupWorld) -> Mapping[str, Any]:
    return fields


def _of_offsets() -> Iterator[Request]:
    for name in (READ, IDLE, "absent"):
        topic = {"name": name, "partitions": [{"partition_index": 0}]}
        yield Request(f"of {name}", "OffsetDelete", 0, partial(_with, {"topics": [topic]}))
    some = [{"name": READ, "partition_indexes": [0, 7]}, {"name": "absent", "partition_indexes": [0]}]
    for version in (1, 7):
        yield Request("of some", "OffsetFetch", version, partial(_with, {"topics": some}))
    for version in (2, 7):
        yield Request("of all", "OffsetFetch", version, partial(_with, {"topics": None}))
    yield Request("of some", "OffsetFetch", 9, partial(_fetch, {"topics": some}), of_group=False)
    member = {"topics": some, "member_id": "nobody", "member_epoch": 1}
    yield Request("of some by a member", "OffsetFetch", 9, partial(_fetch, member), of_group=False)
    yield Request("of partition 7", "OffsetCommit", 9, partial(_with, {"topics": [_seventh()]}))
    yield Request("of absent", "OffsetCommit", 9, partial(_with, {"topics": [_offset(2, "absent")]}))


def _fetch(fields: Mapping[str, Any], world: GroupWorld) -> dict[str, Any]:
    return {"groups": [{"group_id": world.group, **fields}]}


def _seventh() -> dict[str, Any]:
    return {"name": READ, "partitions": [{"partition_index": 7, "committed_offset": 2}]}


def _of_groups() -> Iterator[Request]:
    for version in (0, 5, 6):
        yield Request("all", "DescribeGroups", version, lambda world: {"groups": [world.group]}, of_group=False)
    yield Request("all", "DeleteGroups", 2, lambda world: {"groups_names": [world.group]}, of_group=False)
    for version in (3, 5):
        yield Request("all", "ListGroups", version, partial(_with, {}), of_group=False)
    yield Request("classic ones", "ListGroups", 5, partial(_with, {"types_filter": ["classic"]}), of_group=False)
    yield Request("Stable ones", "ListGroups", 5, partial(_with, {"states_filter": ["Stable"]}), of_group=False)
