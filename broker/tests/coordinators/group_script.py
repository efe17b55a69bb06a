"""Scripts that play a group: lines `>> step`, each followed by lines `<< result`. They read as documents.

    >> join a [as MEMBER] [static INSTANCE] [can range,sticky] [topics t1,t2] [session MS] [rebalance MS] [type T] [v3]
    >> sync MEMBER gen 1 [MEMBER=ASSIGNMENT ...]
    >> heartbeat MEMBER gen 1
    >> commit MEMBER gen 1
    >> leave MEMBER ...
    >> wait MS
    >> stored | store fails ERROR

A new member of client `a` gets the id `a-1`; the next new id ends in `-2`. Results begin with the client or member.
"""

import struct
from collections.abc import Callable, Iterator

from barnabas_broker.coordinators.groups import group, membership, rebalance
from barnabas_broker.coordinators.groups.group import Group
from barnabas_broker.coordinators.groups.messages import (
    Append,
    JoinReply,
    JoinRequest,
    LeaveResult,
    MemberIdentity,
    Reply,
    Step,
    SyncRequest,
    Token,
)
from barnabas_broker.coordinators.modern.records import MemberProtocol
from barnabas_broker.coordinators.runtime.turns import Now
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config
from barnabas_core.errors import ErrorCode

DEFAULTS = parse_broker_config({})
AT_ONCE = parse_broker_config({"group.initial.rebalance.delay.ms": "0"})
WALL_MS_AT_START = 1_700_000_000_000


def subscription(topics: list[str], version: int = 1) -> bytes:
    """Return a consumer's subscription to these topics: the part that a broker reads, and some bytes after it."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", version, len(topics)) + names + b"\xff\xff\xff\xff"


class GroupPlayer:
    """A group, a clock, and the results of each step in words."""

    def __init__(self, config: BrokerConfig) -> None:
        self.config = config
        self.group = Group("readers")
        self.steady_ms = 0
        self.said: list[str] = []
        self.stores: list[Append] = []
        self.waiting: dict[Token, str] = {}
        self.last_id = 0
        self._tokens = 0

    @property
    def now(self) -> Now:
        return Now(WALL_MS_AT_START + self.steady_ms, self.steady_ms)

    def token(self, name: str) -> Token:
        self._tokens += 1
        token = Token(self._tokens)
        self.waiting[token] = name
        return token

    def play(self, line: str) -> list[str]:
        """Return the results of one line."""
        self.said = []
        verb, *words = line.split()
        getattr(self, f"do_{verb}")(words)
        return self.said

    def run(self, step_of_group: Callable[[Step], object]) -> None:
        step = Step(self.now, self.config)
        step_of_group(step)
        for token, reply in step.replies:
            self.said.append(f"{self.waiting.pop(token)} {describe(reply)}")
        if step.append is not None:
            self.stores.append(step.append)
            metadata = step.append.metadata
            members = " ".join(f"{member.member_id}={member.assignment.decode()}" for member in metadata.members)
            self.said.append(f"store generation {metadata.generation}: {members or 'empty'}")

    def do_join(self, words: list[str]) -> None:
        client, *options = words
        version = int(options.pop()[1:]) if options and options[-1] in ("v3", "v8") else 9
        given = dict(zip(options[::2], options[1::2], strict=True))
        self.last_id += 1
        instance_id = given.get("static")
        topics = given.get("topics", "flights").split(",")
        request = JoinRequest(
            group_id="readers",
            member_id=given.get("as", ""),
            instance_id=instance_id,
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=int(given.get("session", 10_000)),
            rebalance_timeout_ms=int(given.get("rebalance", 60_000)),
            protocol_type=given.get("type", "consumer"),
            protocols=tuple(
                MemberProtocol(name, subscription(topics)) for name in given.get("can", "range").split(",")
            ),
            new_member_id=f"{client}-{self.last_id}",
            requires_known_member_id=version >= 4,
            supports_skipping_assignment=version >= 9,
        )
        self.last_id -= bool(request.member_id)
        self.run(lambda step: rebalance.join(self.group, request, self.token(client), step))

    def do_sync(self, words: list[str]) -> None:
        member_id, _, generation, *rest = words
        assignments = dict(word.split("=") for word in rest if "=" in word)
        options = [word for word in rest if "=" not in word]
        given = dict(zip(options[::2], options[1::2], strict=True))
        request = SyncRequest(
            "readers",
            member_id,
            given.get("static"),
            int(generation),
            given.get("type"),
            given.get("protocol"),
            {member: assignment.encode() for member, assignment in assignments.items()},
        )
        self.run(lambda step: membership.sync(self.group, request, self.token(member_id), step))

    def do_heartbeat(self, words: list[str]) -> None:
        member_id, _, generation, *rest = words
        instance_id = rest[1] if rest else None
        self.said.append(membership.heartbeat(self.group, member_id, instance_id, int(generation), self.now).name)

    def do_commit(self, words: list[str]) -> None:
        member_id, _, generation = words
        name = "" if member_id == "stranger" else member_id
        self.said.append(group.check_commit(self.group, name, None, int(generation), self.now).name)

    def do_leave(self, words: list[str]) -> None:
        identities = [
            MemberIdentity("", word.removeprefix("static:")) if word.startswith("static:") else MemberIdentity(word)
            for word in words
        ]
        results: list[LeaveResult] = []
        self.run(lambda step: results.extend(membership.leave(self.group, identities, step)))
        self.said[:0] = [result.error.name for result in results]

    def do_wait(self, words: list[str]) -> None:
        until_ms = self.steady_ms + int(words[0])
        while self.group.wake_ms is not None and self.group.wake_ms <= until_ms:
            self.steady_ms = max(self.group.wake_ms, self.steady_ms)
            self.run(lambda step: membership.on_time(self.group, step))
        self.steady_ms = until_ms

    def do_stored(self, words: list[str]) -> None:
        store = self.stores.pop(0)
        self.run(lambda step: membership.appended(self.group, store, step))

    def do_store(self, words: list[str]) -> None:
        store = self.stores.pop(0)
        self.run(lambda step: membership.append_failed(self.group, store, ErrorCode[words[1]], step))

    def do_state(self, words: list[str]) -> None:
        members = " ".join(self.group.members)
        self.said.append(f"{self.group.state.value} generation {self.group.generation}: {members or 'nobody'}")


def describe(reply: Reply) -> str:
    """Return a reply in words."""
    if reply.error is not ErrorCode.NONE:
        named = f" {reply.member_id}" if isinstance(reply, JoinReply) and reply.member_id else ""
        return f"{reply.error.name}{named}"
    if not isinstance(reply, JoinReply):
        return f"assigned {reply.assignment.decode() or 'nothing'}"
    members = f" of {' '.join(member.member_id for member in reply.members)}" if reply.members else ""
    skip = " skips assignment" if reply.skip_assignment else ""
    role = "leads" if reply.leader == reply.member_id else f"follows {reply.leader}"
    return f"joined {reply.generation} as {reply.member_id}, {role}{members}, {reply.protocol_name}{skip}"


def transcript(player: GroupPlayer, script: str) -> Iterator[str]:
    """Yield the script with the actual results of each of its lines."""
    for line in script.strip().splitlines():
        text = line.strip()
        if text.startswith(">>"):
            yield text
            yield from (f"<< {said}" for said in player.play(text.removeprefix(">>")))
        elif not text.startswith("<<"):
            yield text


def check(script: str, config: BrokerConfig = AT_ONCE) -> GroupPlayer:
    """Play the script and compare the results with those in it."""
    player = GroupPlayer(config)
    expected = [line.strip() for line in script.strip().splitlines()]
    assert [line for line in transcript(player, script) if line] == [line for line in expected if line]
    return player
