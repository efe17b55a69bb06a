"""`make bytecodes`: how many bytecodes of CPython a broker executes for one Produce and one Fetch.

Three brokers run in this process, on one event loop, with sockets between them and the client. During a request
every bytecode counts that a callback of theirs executes, from the bytes read off a socket to the bytes written.
The loop's own bytecodes are left out, and so is other work of brokers. Of several equal requests the cheapest counts:
it is one that wrote no index page. So the count is the same on any machine. A fourth
broker shows how many more it takes for a user who has authenticated and is bound by ACLs.
"""

import asyncio
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final
from uuid import UUID

from kafka.protocol.admin import CreateAclsRequest, CreateTopicsRequest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from barnabas_broker.app.broker import Broker
from barnabas_broker.app.loop_turns import MeasuringSelector
from barnabas_broker.app.main import share_out
from barnabas_broker.replication.follower_sessions import FollowerSession
from barnabas_broker.replication.partition import CommitQueue
from barnabas_broker.server.connection import Connection
from barnabas_broker.server.peer_link import PeerLink
from barnabas_broker.wire.records import Record, encode_batch
from barnabas_core.acls import AclOperation, PatternType, Permission, ResourceType
from barnabas_core.config.broker_config import parse_broker_config
from barnabas_core.loop_turns import LONGEST_PART, LOOP_SHARE
from harness.server_process import free_port

CLIENT_ID: Final = "bench"
PRODUCE_VERSION: Final = 13
FETCH_VERSION: Final = 17
BATCH_BYTES: Final = 16 * 1024
RECORDS: Final = 16
WARM_UP: Final = 6
"""Requests before any is counted: the first batches of a connection are checked in full, and caches are filled."""
REQUESTS: Final = 12
"""The number of requests of each kind; the cheapest counts."""
DEAREST: Final = 10
SETTLED_S: Final = 0.01
"""The time after an answer until the followers have fetched again."""
LOOPS_OWN: Final = ("_run_once", "_run", "_run_soon")
TIMERS_ORDER: Final = "__lt__"
"""The number of comparisons of timers in the loop depends on how many timers there are."""
BOUNDS: Final = {
    "Produce, acks=1": 1_200,
    "Produce, acks=all of three replicas": 2_160,
    "  fetches of the two followers, at the leader": 5_620,
    "  appends of the two followers": 4_460,
    "Fetch of the newest batch": 2_060,
}
"""The most bytecodes that each row may cost: the next multiple of 10. They may only be lowered.

They were raised once, when brokers without an authorizer began to ask for rights in the same code as others.
"""
RIGHTS: Final = {
    "Produce, acks=1": "  more for a user with ACLs, Produce",
    "Fetch of the newest batch": "  more for a user with ACLs, Fetch",
}
"""The rows that an authenticated user repeats, and the names of the differences."""
RIGHTS_MAX: Final = 60
"""The most that the rights of a user may cost: they are looked up, and decided only when an ACL has changed."""
USER: Final = "alice"
PASSWORD: Final = "wonder"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"

Costs = Counter[CodeType]


class Counted:
    """The bytecodes of one request, by function, and by the broker and connection for which they were executed."""

    def __init__(self) -> None:
        self.client: Costs = Counter()
        """The bytecodes of the broker that serves the client, for the client."""
        self.leader: Costs = Counter()
        """The bytecodes of the same broker, for the fetches of its followers."""
        self.followers: Costs = Counter()
        """The bytecodes of the followers, which append what they have fetched, and fetch again."""

    def of(self, root: FrameType) -> Costs | None:
        """Return the costs to which a callback with all its calls belongs, or None if it belongs to no request."""
        owner = root.f_locals.get("self")
        if isinstance(owner, PeerLink):
            return self.followers
        if isinstance(owner, FollowerSession):
            return self.leader
        if isinstance(owner, Connection):
            return self.client if owner.client.client_id == CLIENT_ID else self.leader
        return self.client if isinstance(owner, CommitQueue) else None


@contextmanager
def counting() -> Iterator[Counted]:
    """Count what the loop calls inside of the context."""
    counted = Counted()
    of_frame: dict[FrameType, Costs] = {}

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            of_frame[frame][frame.f_code] += 1
        return step

    def called(frame: FrameType, _: str, __: Any) -> Any:
        caller = frame.f_back
        is_root = caller is not None and caller.f_code.co_name in LOOPS_OWN
        costs = counted.of(frame) if is_root else of_frame.get(caller) if caller is not None else None
        if costs is None or frame.f_code.co_name == TIMERS_ORDER:
            return None
        of_frame[frame] = costs
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return step

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield counted
    finally:
        sys.settrace(before)


class Client:
    """One connection to a broker."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    async def ask(self, frame: bytes) -> bytes:
        """Send a framed request and return the answer, without its size."""
        await self._loop.sock_sendall(self._socket, frame)
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def _exactly(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            received = await self._loop.sock_recv(self._socket, size - len(got))
            assert received, "the broker has closed the connection: its log says why"
            got += received
        return bytes(got)

    async def cheapest(self, frame: bytes, *before: bytes) -> Counted:
        """Return the least cost of each part of a request; the requests `before` are sent before each."""
        seen: list[Counted] = []
        for _ in range(WARM_UP + REQUESTS):
            for each in before:
                await self.ask(each)
            with counting() as counted:
                await self.ask(frame)
                await asyncio.sleep(SETTLED_S)
            seen.append(counted)
        best = Counted()
        for part in vars(best):
            setattr(best, part, min((getattr(each, part) for each in seen[WARM_UP:]), key=Counter.total))
        return best


def encoded(request: Any, version: int) -> bytes:
    """Return the request with its header and size, as a client sends it."""
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id=CLIENT_ID)
    return bytes(request.encode(header=True, framed=True))


def produce_of(topic_id: UUID, acks: int) -> bytes:
    """Return a Produce of one batch with current timestamps."""
    now_ms, value = int(time.time() * 1000), b"x" * (BATCH_BYTES // RECORDS - 20)
    batch = encode_batch([Record(number, now_ms, None, value) for number in range(RECORDS)])
    data = ProduceRequest.TopicProduceData
    topic = data(topic_id=topic_id, partition_data=[data.PartitionProduceData(index=0, records=bytes(batch))])
    request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=30_000, topic_data=[topic])
    return encoded(request, PRODUCE_VERSION)


def fetch_of(topic_id: UUID, offset: int, isolation_level: int = 0) -> bytes:
    """Return a Fetch of one partition from `offset` on, like the Java client's."""
    topic = FetchRequest.FetchTopic
    partition = topic.FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=isolation_level,
        session_id=0,
        session_epoch=0,
        topics=[topic(topic_id=topic_id, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return encoded(request, FETCH_VERSION)


async def create_topic(client: Client, name: str, replicas: Sequence[int]) -> UUID:
    """Create a topic of one partition that the first of `replicas` leads, and return its id."""
    topic = CreateTopicsRequest.CreatableTopic
    assignment = topic.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    made = topic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[])
    request = CreateTopicsRequest(topics=[made], timeout_ms=30_000, validate_only=False)
    answer = await client.ask(encoded(request, 7))
    (result,) = request.header.get_response_class().decode(answer, header=True).topics
    assert result.error_code == 0, result
    return UUID(str(result.topic_id))


async def _allow(client: Client, topic: str) -> None:
    """Give the user the rights to write to and read a topic."""
    creations = [
        CreateAclsRequest.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=topic,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{USER}",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for operation in (AclOperation.WRITE, AclOperation.READ)
    ]
    request = CreateAclsRequest(creations=creations)
    answer = await client.ask(encoded(request, 3))
    results = request.header.get_response_class().decode(answer, header=True).results
    assert not any(each.error_code for each in results), results


async def _authenticate(client: Client) -> None:
    """Log the user in by PLAIN."""
    await client.ask(encoded(SaslHandshakeRequest(mechanism="PLAIN"), 1))
    token = f"\0{USER}\0{PASSWORD}".encode()
    request = SaslAuthenticateRequest(auth_bytes=token)
    answer = await client.ask(encoded(request, 2))
    result = request.header.get_response_class().decode(answer, header=True)
    assert result.error_code == 0, result


async def started(folder: Path, broker_id: int, port: int, selector: MeasuringSelector, **settings: str) -> Broker:
    """Start a broker of the cluster in the folder on this event loop; `settings` are further ones of it."""
    config = parse_broker_config(
        {
            "node.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "log.dirs": str(folder / f"logs-{broker_id}"),
            "metadata.store": f"sqlite:///{folder / 'metadata.db'}",
            "http.listener": "",
        }
        | settings
    )
    broker = Broker(config, share_out(1000).segments, asyncio.get_running_loop(), selector)
    await broker.start()
    return broker


async def _measured(folder: Path, selector: MeasuringSelector) -> list[Costs]:
    ports = [free_port() for _ in range(3)]
    brokers = [await started(folder, number + 1, port, selector) for number, port in enumerate(ports)]
    client = Client(ports[0])
    try:
        alone, replicated = (
            await create_topic(client, "alone", [1]),
            await create_topic(client, "replicated", [1, 2, 3]),
        )
        for_one = await client.cheapest(produce_of(alone, acks=1))
        for_all = await client.cheapest(produce_of(replicated, acks=-1))
        read = await client.cheapest(fetch_of(alone, (WARM_UP + REQUESTS - 1) * RECORDS))
        return [for_one.client, for_all.client, for_all.leader, for_all.followers, read.client]
    finally:
        client.close()
        for broker in reversed(brokers):
            await broker.stop()


async def _measured_with_acls(folder: Path, selector: MeasuringSelector) -> list[Costs]:
    """Return the cost of a user's Produce and Fetch on a broker with an authorizer."""
    open_port, port = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{open_port},SASL_PLAINTEXT://127.0.0.1:{port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="{PASSWORD}";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    broker = await started(folder, 1, open_port, selector, **settings)
    admin, client = Client(open_port), Client(port)
    try:
        topic_id = await create_topic(admin, "guarded", [1])
        await _allow(admin, "guarded")
        await _authenticate(client)
        written = await client.cheapest(produce_of(topic_id, acks=1))
        read = await client.cheapest(fetch_of(topic_id, (WARM_UP + REQUESTS - 1) * RECORDS))
        return [written.client, read.client]
    finally:
        admin.close()
        client.close()
        await broker.stop()


def _run(measure: Callable[[Path, MeasuringSelector], Coroutine[Any, Any, list[Costs]]]) -> list[Costs]:
    selector = MeasuringSelector()
    # Tracing slows all down, so no long turn is noted, and no request waits for the next turn.
    selector.turns.noted_s = LONGEST_PART.seconds = LOOP_SHARE.seconds = inf
    loop = asyncio.SelectorEventLoop(selector)
    with tempfile.TemporaryDirectory() as folder:
        rows = loop.run_until_complete(measure(Path(folder), selector))
    loop.close()
    return rows


def measured() -> dict[str, Costs]:
    """Return the bytecodes of each row of `BOUNDS`, by function, and what `RIGHTS` adds to two of them."""
    rows = dict(zip(BOUNDS, _run(_measured), strict=True))
    with_acls = _run(_measured_with_acls)
    for (row, name), costs in zip(RIGHTS.items(), with_acls, strict=True):
        costs.subtract(rows[row])
        rows[name] = costs
    return rows


def bound_of(name: str) -> int:
    """Return the most that a row may cost."""
    return BOUNDS.get(name, RIGHTS_MAX)


def table(rows: dict[str, Costs]) -> Iterator[str]:
    """Yield the printed lines: each row with its functions, the most expensive first."""
    for name, costs in rows.items():
        yield f"{name:<48}{costs.total():>6}, at most {bound_of(name)} allowed"
        yield from (f"{count:>10}  {code.co_qualname}" for code, count in costs.most_common(DEAREST) if count)


def main() -> int:
    """Print the table; return 1 if a row costs more than it may."""
    rows = measured()
    print("\n".join(table(rows)))
    too_dear = [name.strip() for name, costs in rows.items() if costs.total() > bound_of(name)]
    if too_dear:
        print(f"more bytecodes than bench/bytecodes.py allows: {'; '.join(too_dear)}", file=sys.stderr)
    return 1 if too_dear else 0


if __name__ == "__main__":
    sys.exit(main())
