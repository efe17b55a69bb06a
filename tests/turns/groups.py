"""`python -m turns.groups`: sends hostile heartbeats to large consumer groups (KIP-848) of a real broker.

It prints the CPU time of the longest turn of the broker's loop, the time for which a member of another group waited for
its answers meanwhile (99 % of them, and the longest), and the error that the heartbeats got. `make proof-groups` runs
it.
"""

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection as PipeConnection
from pathlib import Path
from statistics import quantiles
from typing import Any, Final
from uuid import UUID

from barnabas_broker.wire.messages import ConsumerGroupHeartbeatRequest
from barnabas_core.errors import ErrorCode
from harness.barnabas_server import prepare_barnabas
from harness.codec_client import Connection, filled
from harness.server_process import ServerProcess
from turns.__main__ import AIM_S, longest

MEMBERS: Final = 10_000
PARTITIONS: Final = 2_000
TOPICS: Final = 5_000
PATTERNS: Final = 1_000
CONNECTIONS: Final = 500
OWN_GROUP: Final = "neighbours"
ANSWERS_MIN: Final = 2
REBALANCE_MS: Final = 60_000
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.max.session.timeout.ms": "3600000",
    "group.consumer.session.timeout.ms": "3600000",
}
_AGAIN: Final = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
Beat = Mapping[str, Any]


def joining(group: str, member: str, **subscription: Any) -> Beat:
    """Return the fields of a first heartbeat."""
    first = {"member_epoch": 0, "rebalance_timeout_ms": REBALANCE_MS, "topic_partitions": []}
    return {"group_id": group, "member_id": member, **first, **subscription}


class Crowd:
    """Connections on which heartbeats are sent at one time, one on each."""

    def __init__(self, port: int) -> None:
        self._connections = [Connection(port) for _ in range(CONNECTIONS)]

    def ask(self, beats: Sequence[Beat]) -> list[Any]:
        """Return the answers."""
        answers: list[Any] = []
        for begin in range(0, len(beats), CONNECTIONS):
            some = list(zip(self._connections, beats[begin : begin + CONNECTIONS], strict=False))
            for connection, beat in some:
                connection.send(filled(ConsumerGroupHeartbeatRequest, beat), 1)
            answers += [connection.receive("ConsumerGroupHeartbeat", 1) for connection, _ in some]
        return answers

    def close(self) -> None:
        """Close all connections; the members stay."""
        for each in self._connections:
            each.close()


class Neighbour:
    """A member of another group that sends heartbeats all the time.

    It is a process of its own, because the crowd keeps the threads of this one waiting.
    """

    def __init__(self, port: int) -> None:
        context = get_context("spawn")
        self._pipe, other_end = context.Pipe()
        self._process = context.Process(target=_beat_until_told, args=(port, other_end))
        self.waited_s: list[float] = []

    def __enter__(self) -> "Neighbour":
        self._process.start()
        self._pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.send(None)
        self.waited_s = self._pipe.recv()
        self._process.join()

    def waited_ms(self) -> str:
        """Return the time within which 99 % of the answers came, and the longest."""
        inside = quantiles(self.waited_s, n=100, method="inclusive")[-1]
        return f"{inside * 1000:.0f} | {max(self.waited_s) * 1000:.0f}"


def _beat_until_told(port: int, pipe: "PipeConnection[Any, Any]") -> None:
    """Join the group, send a heartbeat every 5 ms until a message comes, and send back how long each answer took."""
    with closing(Connection(port)) as connection:
        epoch = _accepted(connection, joining(OWN_GROUP, "one", subscribed_topic_names=["large"]))
        pipe.send(None)
        waited_s: list[float] = []
        while len(waited_s) < ANSWERS_MIN or not pipe.poll(0.005):
            began_s = time.monotonic()
            _accepted(connection, {"group_id": OWN_GROUP, "member_id": "one", "member_epoch": epoch})
            waited_s.append(time.monotonic() - began_s)
        pipe.send(waited_s)


def _accepted(connection: Connection, fields: Beat) -> int:
    """Send a heartbeat until the coordinator is there; return the member epoch of the answer."""
    while True:
        answer = connection.request("ConsumerGroupHeartbeat", 1, fields)
        if answer.error_code not in _AGAIN:
            assert answer.error_code == ErrorCode.NONE, answer
            return int(answer.member_epoch)
        time.sleep(0.05)


class Attack:
    """A broker with topics, and a crowd that sends it heartbeats."""

    def __init__(self, server: ServerProcess) -> None:
        self.crowd = Crowd(server.port)
        self._connection = Connection(server.port)
        self.names = [f"topic-{number:05}" for number in range(TOPICS)]
        self._create([("large", PARTITIONS), *((name, 1) for name in self.names)])

    def _create(self, topics: Sequence[tuple[str, int]]) -> None:
        for begin in range(0, len(topics), 500):
            made = [
                {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
                for name, count in topics[begin : begin + 500]
            ]
            answer = self._connection.request("CreateTopics", 7, {"topics": made, "timeout_ms": 60_000})
            assert {each.error_code for each in answer.topics} == {ErrorCode.NONE}
        # The first look for a coordinator creates __consumer_offsets.
        self._connection.request("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": [OWN_GROUP]})

    def topic_id(self, name: str) -> UUID:
        """Return the id of a topic."""
        (found,) = self._connection.request("Metadata", 12, {"topics": [{"name": name}]}).topics
        return UUID(str(found.topic_id))

    def large_group(self) -> list[Any]:
        """10,000 members join a group, all send a heartbeat, a hundred leave, and all send another one."""
        members = [f"m{number:05}" for number in range(MEMBERS)]
        joined = self.crowd.ask([joining("crowd", each, subscribed_topic_names=["large"]) for each in members])
        learned = self._beats(members, joined)
        leaving = [{"group_id": "crowd", "member_id": each, "member_epoch": -1} for each in members[:100]]
        left = self.crowd.ask(leaving)
        return [*joined, *learned, *left, *self._beats(members[100:], learned[100:])]

    def _beats(self, members: Sequence[str], before: Sequence[Any], group: str = "crowd") -> list[Any]:
        pairs = zip(members, before, strict=True)
        return self.crowd.ask(
            [{"group_id": group, "member_id": each, "member_epoch": last.member_epoch} for each, last in pairs]
        )

    def many_topics(self) -> list[Any]:
        """A member gets 5,000 topics by their names, and gives half of them up for another one."""
        return self._many_topics("wide", {"subscribed_topic_names": self.names})

    def matched_topics(self) -> list[Any]:
        """A member gets 5,000 topics by a regular expression, and gives half of them up for another one."""
        return self._many_topics("matched", {"subscribed_topic_regex": "topic-.*"})

    def _many_topics(self, group: str, subscription: Beat) -> list[Any]:
        first = joining(group, "a", **subscription)
        joined = self._joined(first)
        owned = _owned(joined)
        assert len(owned) == TOPICS
        beat = {**first, "member_epoch": joined.member_epoch, "topic_partitions": owned}
        second = self._joined(joining(group, "b", **subscription))
        revoking = self.crowd.ask([beat])
        revoked = self.crowd.ask([{**beat, "topic_partitions": _owned(revoking[0])}])
        return [joined, second, *revoking, *revoked, *self._beats(["b"], [second], group)]

    def _joined(self, beat: Beat) -> Any:
        (answer,) = self.crowd.ask([beat])
        return answer

    def long_expressions(self) -> list[Any]:
        """1,000 members subscribe by a regular expression of 10 kB each."""
        texts = [f"t{number}|" + "a" * 10_240 for number in range(PATTERNS)]
        return self.crowd.ask([joining("long", f"m{n}", subscribed_topic_regex=text) for n, text in enumerate(texts)])

    def many_expressions(self) -> list[Any]:
        """1,000 members of a group subscribe by a regular expression each, and send a heartbeat."""
        members = [f"m{number:03}" for number in range(PATTERNS)]
        texts = [f"topic-0*{number}|topic-{number:05}.*[a-z]+(x|y)*" for number in range(PATTERNS)]
        pairs = zip(members, texts, strict=True)
        joined = self.crowd.ask([joining("texts", each, subscribed_topic_regex=text) for each, text in pairs])
        return [*joined, *self._beats(members, joined, "texts")]

    def strangers(self) -> list[Any]:
        """2,000 members that do not exist send heartbeats to a group of 5,000 topics."""
        return self.crowd.ask([{"group_id": "wide", "member_id": f"x{n}", "member_epoch": 7} for n in range(2_000)])

    def past(self) -> list[Any]:
        """A member sends 2,000 heartbeats with an epoch of the past."""
        return self.crowd.ask([{"group_id": OWN_GROUP, "member_id": "one", "member_epoch": 1}] * 2_000)

    def partitions_of_others(self) -> list[Any]:
        """A member says 50 times that it owns 5,000 partitions which it does not have."""
        joined = self._joined(joining("claims", "a", subscribed_topic_names=["topic-00000"]))
        claimed = [{"topic_id": self.topic_id("large"), "partitions": list(range(5_000))}]
        beat = {"group_id": "claims", "member_id": "a", "member_epoch": joined.member_epoch}
        return self.crowd.ask([{**beat, "topic_partitions": claimed}] * 50)

    def unknown_assignor(self) -> list[Any]:
        """1,000 members name an assignor that the broker does not have."""
        fields = {"subscribed_topic_names": ["large"], "server_assignor": "sticky"}
        return self.crowd.ask([joining("crowd", f"x{n}", **fields) for n in range(1_000)])


def _owned(answer: Any) -> list[Beat]:
    topics = answer.assignment.topic_partitions
    return [{"topic_id": each.topic_id, "partitions": each.partitions} for each in topics]


@contextmanager
def attacked(folder: Path, turns: Path) -> Iterator[ServerProcess]:
    """Run a broker that writes its long turns to a file."""
    turns.touch()
    server = prepare_barnabas(folder, SETTINGS, program=("-m", "turns.measured_broker", str(turns)))
    server.start()
    try:
        yield server
    finally:
        server.close()


EXPECTED: Final = {
    "large_group": {"NONE"},
    "many_topics": {"NONE"},
    "matched_topics": {"NONE"},
    "long_expressions": {"INVALID_REGULAR_EXPRESSION"},
    "many_expressions": {"NONE"},
    "strangers": {"UNKNOWN_MEMBER_ID"},
    "past": {"FENCED_MEMBER_EPOCH"},
    "partitions_of_others": {"NONE"},
    "unknown_assignor": {"UNSUPPORTED_ASSIGNOR"},
}
"""The errors of Apache Kafka in each scenario."""


def main() -> int:
    """Print the table; return 1 if a turn was longer than AIM_S, or an error is another one."""
    print("| what | errors | s | longest turn, ms of CPU | of | neighbour waited, ms, p99 | longest |")
    print("|---|---|---|---|---|---|---|")
    wrong = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        turns = Path(folder) / "turns"
        server = stack.enter_context(attacked(Path(folder), turns))
        attack = Attack(server)
        for name, expected in EXPECTED.items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            scenario = getattr(attack, name)
            since, began_s = turns.stat().st_size, time.monotonic()
            with Neighbour(server.port) as neighbour:
                errors = {ErrorCode(each.error_code).name for each in scenario()}
            turn, took_s = longest(turns, since), time.monotonic() - began_s
            cells = (scenario.__doc__.strip(" ."), ", ".join(sorted(errors)), f"{took_s:.1f}")
            times = (f"{turn.cpu_s * 1000:.0f}", turn.what, neighbour.waited_ms())
            print(f"| {' | '.join((*cells, *times))} |", flush=True)
            if errors != expected:
                wrong.append(f"{name}: {sorted(errors)}, not {sorted(expected)}")
            if turn.cpu_s > AIM_S:
                wrong.append(f"{name}: a turn of {turn.cpu_s * 1000:.0f} ms")
        attack.crowd.close()
        if "Traceback" in server.log_text():
            wrong.append("the broker printed a Traceback")
    print("\n".join(wrong) or "no turn is too long, and all errors are those of Apache Kafka")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
