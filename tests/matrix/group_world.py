"""One classic consumer group on a broker, brought into a state by real requests, with symbols for its member ids."""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas_core.errors import ErrorCode
from harness.deadline import wait_for
from matrix.talk import Broker, Pending, in_words

READ: Final = "read"
IDLE: Final = "idle"
"""The topic to which all members subscribe, and one to which none does."""
CONSUMER: Final = "consumer"
TIMEOUT_MS: Final = 300_000
NOBODY: Final = "nobody"
NO_GROUP: Final = "no group"
"""A group that has left nothing in the log: Apache Kafka shows it as Empty once another group has written a record."""
_EACH: Final = [{"name": name, "partition_indexes": [0]} for name in (READ, IDLE)]


def subscription(*topics: str) -> bytes:
    """Return a consumer's metadata that subscribes to the topics."""
    names = b"".join(struct.pack(">h", len(each)) + each.encode() for each in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


RANGE: Final = {"name": "range", "metadata": subscription(READ)}


class GroupWorld:
    """A group with members A (the leader) and B, a client with the pending id P, and requests that wait."""

    def __init__(self, broker: Broker, group: str) -> None:
        self.broker, self.group = broker, group
        self.ids: dict[str, str] = {"none": "", "unknown": NOBODY}
        self.instances: dict[str, str] = {}
        self.waiting: dict[str, Pending] = {}
        self.generation = 0
        self._producer: tuple[int, int] | None = None

    def begin(self, name: str, version: int, **fields: Any) -> Pending:
        """Send a request of this group."""
        return self.broker.begin(name, version, {"group_id": self.group, **fields})

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """Return the answer to a request of this group."""
        return self.broker.ask(name, version, {"group_id": self.group, **fields})

    def join(self, who: str, version: int = 5, **fields: Any) -> Pending:
        """Send the JoinGroup of a member, which may not know its id yet."""
        timeouts = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        own = {"member_id": self.ids.get(who, ""), "protocol_type": CONSUMER, "protocols": [RANGE]}
        if who in self.instances:
            own["group_instance_id"] = self.instances[who]
        return self.begin(
            "JoinGroup", version if who in self.instances else min(version, 3), **timeouts, **own | fields
        )

    def learn(self, who: str, pending: Pending) -> Any:
        """Take the member id and the generation from the answer to a JoinGroup."""
        answer = pending.answer()
        assert answer.error_code == 0, answer
        self.ids[who], self.generation = answer.member_id, answer.generation_id
        return answer

    def sync(self, who: str, assignments: Mapping[str, bytes] | None = None) -> Pending:
        """Send the SyncGroup of a member."""
        given = [{"member_id": self.ids[each], "assignment": value} for each, value in (assignments or {}).items()]
        return self.begin("SyncGroup", 3, **self.identity(who), generation_id=self.generation, assignments=given)

    def identity(self, who: str) -> dict[str, Any]:
        """Return the ids of a member."""
        return {"member_id": self.ids[who], "group_instance_id": self.instances.get(who)}

    def give_pending_id(self) -> None:
        """Let a client get the member id P, with which it does not join."""
        timeouts = {"session_timeout_ms": TIMEOUT_MS, "rebalance_timeout_ms": TIMEOUT_MS}
        self.ids["P"] = self.ask("JoinGroup", 9, **timeouts, protocol_type=CONSUMER, protocols=[RANGE]).member_id

    def form(self, *, static: bool = False) -> None:
        """Let A and B join: the generation is 2, and nobody has synced."""
        if static:
            self.instances = {"A": "iA", "B": "iB"}
        self.learn("A", self.join("A"))
        b = self.join("B")
        self._await(lambda described: len(described.members) == 2)
        a = self.join("A")
        self.learn("A", a)
        self.learn("B", b)

    def stabilize(self) -> None:
        """Let A and B sync, and commit an offset of each topic."""
        a, b = self.sync("A", {"A": b"of A", "B": b"of B"}), self.sync("B")
        assert [a.answer().assignment, b.answer().assignment] == [b"of A", b"of B"]
        self.commit(**self.identity("A"), generation_id_or_member_epoch=self.generation)

    def commit(self, **fields: Any) -> None:
        """Commit the offset 1 of both topics."""
        topics = [
            {"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in (READ, IDLE)
        ]
        answer = self.ask("OffsetCommit", 8, topics=topics, **fields)
        assert not any(each.error_code for topic in answer.topics for each in topic.partitions), answer

    def commit_in_transaction(self) -> None:
        """Commit the offset 2 of the topic READ in a transaction that stays open."""
        topics = [{"name": READ, "partitions": [{"partition_index": 0, "committed_offset": 2}]}]
        id_, epoch = self.producer()
        of = {"transactional_id": self.group, "producer_id": id_, "producer_epoch": epoch}
        answer = self.ask("TxnOffsetCommit", 5, **of, generation_id_or_member_epoch=-1, topics=topics)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def leave(self, *who: str) -> None:
        """Let members leave."""
        members = [{"member_id": self.ids[each], "group_instance_id": self.instances.get(each)} for each in who]
        answer = self.ask("LeaveGroup", 4, members=members)
        assert not any(each.error_code for each in answer.members), answer

    def wait_with(self, name: str, pending: Pending) -> None:
        """Keep a request that waits, after the broker has seen it."""
        assert self.broker.settled(pending) is None, pending.answer()
        self.waiting[name] = pending

    def producer(self) -> tuple[int, int]:
        """Return the producer id and epoch of the group's transactional id, which is the name of the group."""
        if self._producer is None:
            self._producer = wait_for(self._init)
        assert self._producer is not None
        return self._producer

    def _init(self) -> tuple[int, int] | None:
        fields = {"transactional_id": self.group, "transaction_timeout_ms": 600_000, "producer_id": -1}
        answer = self.broker.ask("InitProducerId", 4, {**fields, "producer_epoch": -1})
        assert answer.error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answer
        return None if answer.error_code else (answer.producer_id, answer.producer_epoch)

    def describe(self) -> Any:
        """Return the description of the group."""
        return self.broker.ask("DescribeGroups", 6, {"groups": [self.group]}).groups[0]

    def _await(self, condition: Callable[[Any], bool]) -> None:
        wait_for(lambda: condition(self.describe()), pause_s=0.002)

    @property
    def names(self) -> dict[str, str]:
        """Return the symbols by id, for text."""
        return {id_: who for who, id_ in self.ids.items() if who not in ("none", "unknown")} | {self.group: "group"}

    def state(self) -> str:
        """Return what clients see of the group: its description, and its committed offsets."""
        described = self.describe()
        members = [
            f"{self.symbol(each.member_id)}{f'/{each.group_instance_id}' if each.group_instance_id else ''}"
            f"{f'={bytes(each.member_assignment).decode()}' if each.member_assignment else ''}"
            for each in described.members
        ]
        wanted = {"groups": [{"group_id": self.group, "topics": _EACH}], "require_stable": True}
        fetched = self.broker.ask("OffsetFetch", 8, wanted).groups[0]
        offsets = [
            f"{topic.name}:{'unstable' if each.error_code else each.committed_offset}"
            for topic in fetched.topics
            for each in topic.partitions
            if each.error_code or each.committed_offset >= 0
        ]
        type_ = f"{described.protocol_type or '-'}/{described.protocol_data or '-'}"
        if described.group_state in ("Dead", "Empty") and not described.protocol_type and not offsets:
            return NO_GROUP
        return f"{described.group_state} {type_} [{' '.join(sorted(members))}] [{' '.join(sorted(offsets))}]"

    def symbol(self, member_id: str) -> str:
        """Return the symbol of a member id; an id that the cell has given is `new`."""
        return self.names.get(member_id, "new")

    def answers(self) -> str:
        """Return the answers that the waiting requests have got."""
        found = {name: each.answer(0) for name, each in self.waiting.items()}
        return ", ".join(
            f"{name}: {in_words(answer, self.waiting[name].version, self.names)}"
            for name, answer in found.items()
            if answer is not None
        )

    def close(self) -> None:
        """Close the connections of requests that still wait."""
        for each in self.waiting.values():
            each.close()
