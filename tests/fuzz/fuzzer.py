"""Sends hostile requests to a running broker over many connections, and checks its promises.

A case is one connection with one to four pipelined requests, all a function of the seed and the case's number. The
broker must answer or close the connection; between the rounds of cases it must serve a client as usual; its log must
have no internal failure and at most one line per request; and its memory must stay bounded.
"""

import asyncio
import itertools
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas_core.kafka_uuid import from_text
from fuzz.hostile_requests import Request, Target, hostile_request
from harness.barnabas_server import peak_resident_bytes, prepare_barnabas, resident_bytes
from harness.server_process import ServerProcess

CANARY = "canary"
TOPICS = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "recompressed": {"compression.type": "gzip"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
}
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.num.partitions": "3",
    "share.coordinator.state.topic.replication.factor": "1",
}
CASES_PER_ROUND = 1000
WARM_UP_CASES = 2000
"""Codecs, buffers and caches are made on first use; memory that grows after that is a leak."""
CONNECTIONS = 32
CLIENT_ADDRESSES = 200
"""Each address has its own ports: those of ended connections stay in use for a minute."""
WAITING_APIS = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup and ShareFetch may wait for other clients; for these the client leaves first."""
PATIENCE_S = 0.3
ANSWER_S_MAX = 20.0
GROWTH_BYTES_MAX = 2 * 1024 * 1024
GROWTH_BYTES_PER_CASE = 200
"""Groups, producers and topics made by cases stay. Measured: 1.5 MB after 8,000 cases, 2 to 3 MB after 18,000."""
PEAK_BYTES_MAX = 100 * 1024 * 1024
"""Measured: 43 MB. The content of bombs is in the helper process's memory."""


class Case(NamedTuple):
    """The bytes that one connection sends."""

    number: int
    requests: list[Request]

    @property
    def data(self) -> bytes:
        return b"".join(request.data for request in self.requests)

    @property
    def may_wait(self) -> bool:
        return any(struct.unpack_from(">h", request.data.ljust(6), 4)[0] in WAITING_APIS for request in self.requests)

    @property
    def answers_owed(self) -> int:
        """Return the number of responses before the first request for which the broker may close the connection."""
        return len(list(itertools.takewhile(lambda request: request.is_owed_an_answer, self.requests)))

    def __str__(self) -> str:
        names = ", ".join(f"{request.api} v{request.version} {len(request.data)} B" for request in self.requests)
        return f"case {self.number} ({names})"


class Outcome(NamedTuple):
    """The broker's reaction."""

    case: Case
    port: int
    end: str
    answers: int


class BrokerMisbehaved(AssertionError):
    """A promise was broken; the message names it and the cases."""


def make_case(seed: int, number: int, target: Target) -> Case:
    """Return a case: the same bytes for the same seed and number, except for the ids of topics."""
    random = Random(f"{seed}:{number}")
    return Case(number, [hostile_request(random, target) for _ in range(random.choice((1, 1, 1, 2, 4)))])


class FuzzedBroker:
    """A broker with the topics of the cases, and a canary topic that they do not use."""

    def __init__(self, folder: Path) -> None:
        self.log_dirs = [str(folder / "logs-0"), str(folder / "logs-1")]
        self.server: ServerProcess = prepare_barnabas(folder, {**PROPERTIES, "log.dirs": ",".join(self.log_dirs)})
        self._canaries = 0

    def start(self) -> Target:
        """Start the broker; return what the cases may use."""
        self.server.start()
        admin = AdminClient({"bootstrap.servers": self.server.bootstrap})
        new = [NewTopic(name, 1, config=config) for name, config in {CANARY: {}, **TOPICS}.items()]
        for made in admin.create_topics(new).values():
            made.result(30)
        described = admin.describe_topics(TopicCollection(list(TOPICS)))
        ids = {name: from_text(str(future.result(30).topic_id)) for name, future in described.items()}
        return Target(ids, self.log_dirs)

    def check_canary(self) -> None:
        """Check that a stock client gets versions and metadata, writes a record and reads it."""
        self._canaries += 1
        value = b"canary %d" % self._canaries
        errors = []
        settings = {"bootstrap.servers": self.server.bootstrap, "message.timeout.ms": 10_000}
        producer = Producer(settings)
        producer.produce(CANARY, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        producer.flush(15)
        if errors != [None]:
            raise BrokerMisbehaved(f"the canary could not write: {errors}")
        consumer = Consumer({"bootstrap.servers": self.server.bootstrap, "group.id": "canary-readers"})
        consumer.assign([TopicPartition(CANARY, 0, self._canaries - 1)])
        message = consumer.poll(15)
        consumer.close()
        if message is None or message.error() or message.value() != value:
            read = message and (message.error() or message.value())
            raise BrokerMisbehaved(f"the canary read {read!r}, not {value!r}")


async def play(server: ServerProcess, case: Case) -> Outcome:
    """Send the case, shut down the sending side, and read until the broker closes."""
    local = (f"127.0.0.{2 + case.number % CLIENT_ADDRESSES}", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, local_addr=local)
    port = writer.get_extra_info("sockname")[1]
    answers, end = bytearray(), "closed"
    try:
        writer.write(case.data)
        writer.write_eof()
        async with asyncio.timeout(PATIENCE_S if case.may_wait else ANSWER_S_MAX):
            while chunk := await reader.read(1 << 16):
                answers += chunk
    except OSError:
        end = "reset"
    except TimeoutError:
        end = "waits" if case.may_wait else "hangs"
    finally:
        writer.transport.abort()
    return Outcome(case, port, end, _count_answers(bytes(answers)) if end == "closed" else 0)


def _count_answers(data: bytes) -> int:
    """Return the number of whole frames, or -1 if the bytes are no frames."""
    position = count = 0
    while position < len(data):
        if len(data) - position < 8:
            return -1
        position += 4 + struct.unpack_from(">i", data, position)[0]
        count += 1
    return count if position == len(data) else -1


class Fuzzer:
    """Runs cases in rounds; `problems` has what was found."""

    def __init__(self, broker: FuzzedBroker, target: Target, seed: int) -> None:
        self._broker = broker
        self._target = target
        self._seed = seed
        self._lines_seen = 0
        self.ends: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.answers_owed = 0
        self.problems: list[str] = []
        self.warm_bytes = 0

    async def run(self, first: int, count: int) -> None:
        """Run cases `first` to `first + count - 1`."""
        self._new_lines()
        done = 0
        for start in range(first, first + count, CASES_PER_ROUND):
            numbers = range(start, min(start + CASES_PER_ROUND, first + count))
            await self._round(numbers)
            done += len(numbers)
            if done <= WARM_UP_CASES:
                self.warm_bytes = resident_bytes(self._broker.server.pid)
        self._check_memory(max(done - WARM_UP_CASES, 0))

    async def _round(self, numbers: range) -> None:
        outcomes: list[Outcome] = []
        waiting = iter(numbers)
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(CONNECTIONS):
                    tasks.create_task(self._worker(waiting, outcomes))
            self._note(outcomes)
            await asyncio.to_thread(self._broker.check_canary)
        except* (OSError, BrokerMisbehaved) as errors:
            end = self._broker.server.log_end(80)
            raise BrokerMisbehaved(f"cases {numbers}: {errors.exceptions}\n{end}") from None
        finally:
            self._check_log(outcomes)

    async def _worker(self, numbers: Iterator[int], outcomes: list[Outcome]) -> None:
        for number in numbers:
            case = make_case(self._seed, number, self._target)
            outcomes.append(await play(self._broker.server, case))

    def _note(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.ends[outcome.end if outcome.end != "closed" or not outcome.answers else "answered"] += 1
            self.requests.update(request.api for request in outcome.case.requests)
            if outcome.end == "hangs":
                self.problems.append(f"{outcome.case} got neither an answer nor an end in {ANSWER_S_MAX} s")
            if not outcome.case.may_wait:
                self.answers_owed += outcome.case.answers_owed
                if 0 <= outcome.answers < outcome.case.answers_owed and outcome.end == "closed":
                    self.problems.append(f"{outcome.case} got {outcome.answers} answers of {outcome.case.answers_owed}")
            if outcome.answers < 0 or outcome.answers > len(outcome.case.data) // 12:
                self.problems.append(f"{outcome.case} got {outcome.answers} answers")

    def _new_lines(self) -> list[str]:
        lines = self._broker.server.log_text().splitlines()
        new, self._lines_seen = lines[self._lines_seen :], len(lines)
        return new

    def _check_log(self, outcomes: list[Outcome]) -> None:
        lines = self._new_lines()
        cases = {str(outcome.port): outcome.case for outcome in outcomes}
        requests = sum(len(outcome.case.requests) for outcome in outcomes)
        if len(lines) > requests + 20:
            common = Counter(line[26:90] for line in lines).most_common(5)
            self.problems.append(f"{len(lines)} lines in the log for {requests} requests: {common}")
        for index, line in enumerate(lines):
            if "] ERROR " in line:
                case = cases.get(line.partition(" (")[0].rpartition(":")[2])
                trace = "\n".join(itertools.takewhile(lambda each: not each.startswith("["), lines[index + 1 :]))
                self.problems.append(f"{case or 'a case of this round'}: {line}\n{trace}")

    def _check_memory(self, cases: int) -> None:
        now, peak = resident_bytes(self._broker.server.pid), peak_resident_bytes(self._broker.server.pid)
        self.memory = f"{self.warm_bytes >> 20} MB warm, {now >> 20} MB at the end, {peak >> 20} MB at most"
        growth_bytes_max = GROWTH_BYTES_MAX + cases * GROWTH_BYTES_PER_CASE
        if now - self.warm_bytes > growth_bytes_max or peak > PEAK_BYTES_MAX:
            self.problems.append(f"memory: {self.memory}")
