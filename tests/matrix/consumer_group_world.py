"""One consumer group of KIP-848 on a broker, brought into a state by real requests, with symbols for its member ids."""

import re
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from uuid import UUID

from matrix.group_world import CONSUMER, subscription
from matrix.talk import Broker, Pending, in_words

SHARED: Final = "shared"
OTHER: Final = "other"
"""The topic to which all members subscribe, and one to which none does, with two partitions."""
ALL: Final = (0, 1, 2, 3, 4, 5)
"""The partitions of SHARED. One to three members get equal shares: Kafka chooses by chance who gets one more."""
FIRST: Final = (0, 1, 2)
LAST: Final = (3, 4, 5)
TIMEOUT_MS: Final = 300_000
NOBODY: Final = "nobody"
NO_GROUP: Final = "no group"
_INTERVAL: Final = re.compile(r" heartbeat_interval_ms=\d+")


class ConsumerWorld:
    """A group with the members A and B of the consumer protocol, and C of the classic protocol."""

    def __init__(self, broker: Broker, group: str, topic_ids: Mapping[str, UUID]) -> None:
        self.broker, self.group, self._topic_ids = broker, group, topic_ids
        self.ids: dict[str, str] = {"none": "", "nobody": NOBODY}
        for who in "ABN":
            self.ids[who] = f"{group}-{who}"
        self.instances: dict[str, str] = {}
        self.epochs: dict[str, int] = {}
        """The epoch of each member, as its last answer said."""

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Return the answer to a request of this group."""
        return self.broker.ask(name, version, {"group_id": self.group, **fields})

    def begin(self, name: str, version: int, fields: Mapping[str, Any]) -> Pending:
        """Send a request."""
        return self.broker.begin(name, version, fields)

    def owned(self, *numbers: int, topic: str = SHARED) -> list[dict[str, Any]]:
        """Return partitions of a topic as a heartbeat names them."""
        return [{"topic_id": self._topic_ids[topic], "partitions": list(numbers)}] if numbers else []

    def joining(self, who: str, **fields: Any) -> dict[str, Any]:
        """Return the fields of a member's first heartbeat."""
        first = {"rebalance_timeout_ms": TIMEOUT_MS, "subscribed_topic_names": [SHARED], "topic_partitions": []}
        return self.beating(who, 0, **first | fields)

    def beating(self, who: str, epoch: int, **fields: Any) -> dict[str, Any]:
        """Return the fields of a member's heartbeat."""
        own = {"member_id": self.ids[who], "member_epoch": epoch, "instance_id": self.instances.get(who)}
        return own | fields

    def join(self, who: str, **fields: Any) -> None:
        """Let a member join."""
        self._take(who, self.ask("ConsumerGroupHeartbeat", 1, **self.joining(who, **fields)))

    def beat(self, who: str, *numbers: int) -> None:
        """Send the heartbeat of a member that owns these partitions."""
        fields = self.beating(who, self.epochs[who], topic_partitions=self.owned(*numbers))
        self._take(who, self.ask("ConsumerGroupHeartbeat", 1, **fields))

    def leave(self, who: str, epoch: int = -1) -> None:
        """Let a member leave, or with the epoch -2 go away for a while."""
        answer = self.ask("ConsumerGroupHeartbeat", 1, **self.beating(who, epoch))
        assert answer.error_code == 0, answer

    def _take(self, who: str, answer: Any) -> None:
        assert answer.error_code == 0, answer
        self.epochs[who] = answer.member_epoch

    def classic_fields(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of the JoinGroup of the classic member."""
        timeouts = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        protocols = [{"name": "range", "metadata": subscription(SHARED)}]
        own = {"member_id": self.ids.get("C", ""), "protocol_type": CONSUMER, "protocols": protocols}
        return {**timeouts, **own, **fields}

    def join_classic(self) -> Any:
        """Let the classic member join, or join again."""
        answer = self.ask("JoinGroup", 3, **self.classic_fields())
        assert answer.error_code == 0, answer
        self.ids["C"], self.epochs["C"] = answer.member_id, answer.generation_id
        return answer

    def sync_classic(self, assignment: bytes | None = None) -> Any:
        """Send the SyncGroup of the classic member, which the leader of a classic group sends with its assignment."""
        given = [] if assignment is None else [{"member_id": self.ids["C"], "assignment": assignment}]
        own = {"member_id": self.ids["C"], "generation_id": self.epochs["C"]}
        answer = self.ask("SyncGroup", 3, **own, assignments=given)
        assert answer.error_code == 0, answer
        return answer

    def commit(self, who: str) -> None:
        """Commit an offset of each topic as a member."""
        own = {"member_id": self.ids[who], "generation_id_or_member_epoch": self.epochs.get(who, -1)}
        topics = [{"name": each, "partitions": [{"committed_offset": 1}]} for each in (SHARED, OTHER)]
        answer = self.ask("OffsetCommit", 9, **own, topics=topics)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions), answer

    @property
    def names(self) -> dict[str, str]:
        """Return the symbols by id, for text."""
        known = {id_: who for who, id_ in self.ids.items() if who not in ("none", "nobody")}
        return known | {self.group: "group"}

    def words(self, answer: Any, version: int) -> str:
        """Return an answer as text, without the heartbeat interval: we let members come sooner on purpose."""
        text = in_words(answer, version, self.names, {id_: name for name, id_ in self._topic_ids.items()})
        return _INTERVAL.sub("", text)

    def state(self) -> str:
        """Return what clients see of the group: its description and the committed offset of SHARED."""
        (described,) = self.broker.ask("ConsumerGroupDescribe", 1, {"group_ids": [self.group]}).groups
        text = self._classic_state() if described.error_code else self._state_of(described)
        wanted = [{"group_id": self.group, "topics": [{"name": SHARED, "partition_indexes": [0]}]}]
        (fetched,) = self.broker.ask("OffsetFetch", 8, {"groups": wanted}).groups
        return f"{text} @{fetched.topics[0].partitions[0].committed_offset}" if fetched.topics else text

    def _state_of(self, described: Any) -> str:
        members = [
            f"{self.symbol(each.member_id)}{f'/{each.instance_id}' if each.instance_id else ''}"
            f"{'' if each.member_type else ' classic'} {each.member_epoch}"
            f" has {_numbers(each.assignment)} of {_numbers(each.target_assignment)}"
            for each in described.members
        ]
        epochs = f"{described.group_epoch}/{described.assignment_epoch}"
        return f"{described.group_state} {epochs} {described.assignor_name} [{', '.join(sorted(members))}]"

    def _classic_state(self) -> str:
        (described,) = self.broker.ask("DescribeGroups", 6, {"groups": [self.group]}).groups
        if described.group_state in ("Dead", "Empty") and not described.protocol_type:
            return NO_GROUP
        members = sorted(self.symbol(each.member_id) for each in described.members)
        return f"classic {described.group_state} {members}"

    def symbol(self, member_id: str) -> str:
        """Return the symbol of a member id; an id that the cell has given is `new`."""
        return self.names.get(member_id, "new")


def _numbers(assignment: Any) -> str:
    found = [f"{each.topic_name}{sorted(each.partitions)}" for each in assignment.topic_partitions]
    return " ".join(sorted(found)) or "nothing"


def _one(world: ConsumerWorld, **instances: str) -> None:
    world.instances = instances
    world.join("A")
    world.commit("A")


def _empty(world: ConsumerWorld) -> None:
    _one(world)
    world.leave("A")


def _to_revoke(world: ConsumerWorld) -> None:
    _one(world)
    world.join("B")


def _revoking(world: ConsumerWorld) -> None:
    _to_revoke(world)
    world.beat("A", *ALL)


def _unreleased(world: ConsumerWorld) -> None:
    _revoking(world)
    world.beat("A", *FIRST)


def _stable(world: ConsumerWorld) -> None:
    _unreleased(world)
    world.beat("B")


def _away(world: ConsumerWorld) -> None:
    _one(world, A="iA")
    world.leave("A", -2)


def _classic(world: ConsumerWorld) -> None:
    world.join_classic()
    numbers = struct.pack(f">i{len(ALL)}i", len(ALL), *ALL)
    world.sync_classic(struct.pack(">hih", 0, 1, len(SHARED)) + SHARED.encode() + numbers + struct.pack(">i", -1))


def _mixed(world: ConsumerWorld) -> None:
    _one(world)
    world.join_classic()
    world.sync_classic()
    world.beat("A", *ALL)
    world.beat("A", *FIRST)
    world.join_classic()
    world.sync_classic()


STATES: Final[Mapping[str, Callable[[ConsumerWorld], None]]] = {
    "unknown": lambda world: None,
    "offsets only": lambda world: world.commit("none"),
    "Empty": _empty,
    "Stable, A": _one,
    "A must revoke for B": _to_revoke,
    "A revokes for B": _revoking,
    "B may have its share": _unreleased,
    "Stable, A and B": _stable,
    "static A": partial(_one, A="iA"),
    "static A is away": _away,
    "classic C": _classic,
    "A and classic C": _mixed,
}
MEMBERS: Final[Mapping[str, str]] = {
    **dict.fromkeys(STATES, ""),
    **dict.fromkeys(("Stable, A", "static A", "static A is away"), "A"),
    **dict.fromkeys(("A must revoke for B", "A revokes for B", "B may have its share", "Stable, A and B"), "AB"),
    "classic C": "C",
    "A and classic C": "AC",
}
"""The members of each state."""
