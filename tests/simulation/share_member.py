"""A member of a share group at the protocol level: heartbeats, share sessions, and acknowledgements, good and bad."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.wire.messages import message_class
from barnabas_broker.wire.record_batch import HEADER_BYTES, parse_header
from barnabas_broker.wire.records import decode_batch
from barnabas_core.topic_partition import TopicIdPartition
from simulation.clients import FIND_COORDINATOR, Client, Failed
from simulation.share_history import (
    ACCEPT,
    NONE,
    REJECT,
    RELEASE,
    RENEW,
    Delivery,
    Incarnation,
    Place,
    ShareHistory,
)

HEARTBEAT: Final = 76, 1
SHARE_FETCH: Final = 78, 2
SHARE_ACKNOWLEDGE: Final = 79, 2
BEAT_S: Final = 0.3
GAP: Final = 0
RECORD_LIMIT: Final = 1
JOIN_AGAIN: Final = {25, 69, 110}
COORDINATOR_ELSEWHERE: Final = {14, 15, 16, 35}
SESSION_IS_GONE: Final = {122, 123}
LEADER_ELSEWHERE: Final = {-1, 3, 5, 6, 8, 9, 15, 42, 56, 74, 75, 78, 100, 121}
"""The errors of partitions while leaders change; INVALID_REQUEST is that of a state that is not initialized yet."""
STALL_SHARE: Final = 0.02
POISON_EACH: Final = 7
"""The distance of records that no member can process: each of them releases such a record."""
STRANGE_SHARE: Final = 0.05
TWICE_SHARE: Final = 0.05


class Habits(NamedTuple):
    """The shares of what members do with a record; what is left is accepted."""

    release: float = 0.12
    reject: float = 0.15
    renew: float = 0.05
    forget: float = 0.06
    """The share of records that are never acknowledged."""
    late: float = 0.04
    """The share of records that are acknowledged when the lock has mostly ended."""


CALM: Final = Habits(0, 0.05, 0, 0, 0)


@dataclass(eq=False)
class _Session:
    """A share session with one broker."""

    epoch: int = 0
    partitions: set[TopicIdPartition] = field(default_factory=set)


class _Due(NamedTuple):
    delivery: Delivery
    kind: int
    due_s: float


Look = Callable[[str, str, TopicIdPartition], Incarnation | None]
"""A function of broker, member and partition that returns what the broker has in memory."""


class ShareMember:
    """One incarnation of a member. `names` has the topics by their ids."""

    def __init__(
        self, client: Client, group_id: str, names: Mapping[UUID, str], history: ShareHistory, look: Look, lock_s: float
    ) -> None:
        self._client = client
        self._group_id = group_id
        self._names = names
        self._history = history
        self._look = look
        self._lock_s = lock_s
        self.habits = Habits()
        self.member_id = f"{client.host.name}-{client.random.getrandbits(48):012x}"
        self._epoch = 0
        self._coordinator: str | None = None
        self._beat_s = 0.0
        self._assigned: set[TopicIdPartition] = set()
        self._leaders: dict[TopicIdPartition, str] = {}
        self._sessions: dict[str, _Session] = {}
        self._held: dict[str, dict[Delivery, _Due]] = defaultdict(dict)
        """What is to be acknowledged, by the broker that gave it."""
        self._seen: dict[TopicIdPartition, int] = {}
        """The highest offset of each partition that the member was given."""
        self._given: set[Place] = set()

    @property
    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Work until this is cancelled."""
        random = self._client.random
        while True:
            with suppress(Failed):
                await self._beat()
            for broker, keys in (await self._by_leader()).items():
                try:
                    await self._work(broker, keys)
                except Failed:
                    self._lose(broker)
            is_stalled = self.habits is not CALM and random.random() < STALL_SHARE
            await asyncio.sleep(random.uniform(1, 5) if is_stalled else random.uniform(0.02, 0.15))

    async def leave(self) -> None:
        """End: leave the group in good order, or with closed connections only, or silently. Raises Failed."""
        way = self._client.random.choice(["leaves", "closes", "is gone"])
        if way == "leaves":
            self._give_up_all()
            await self._ask_coordinator(-1, None)
        if way != "is gone":
            self._give_up_all()
            self._client.close()

    def _give_up_all(self) -> None:
        for broker in list(self._held):
            self._lose(broker)

    def _lose(self, broker: str) -> None:
        """Note that the session with a broker may have ended."""
        self._sessions.pop(broker, None)
        self._history.gave_up(self._held.pop(broker, ()))
        for key in [key for key, leader in self._leaders.items() if leader == broker]:
            del self._leaders[key]

    async def _beat(self) -> None:
        """Send a heartbeat if it is time. Raises Failed."""
        if self._now_s < self._beat_s:
            return
        is_first = self._epoch == 0 or self._beat_s == 0
        self._beat_s = 0.0
        response = await self._ask_coordinator(self._epoch, sorted(self._names.values()) if is_first else None)
        if response.error_code in JOIN_AGAIN:
            self._epoch = 0
            return
        if response.error_code != NONE:
            self._history.violation(f"a heartbeat is answered with error {response.error_code}")
            return
        self._epoch, self._beat_s = response.member_epoch, self._now_s + BEAT_S
        if response.assignment is not None:
            assigned = response.assignment.topic_partitions
            self._assigned = {
                TopicIdPartition(each.topic_id, number) for each in assigned for number in each.partitions
            }

    async def _ask_coordinator(self, epoch: int, topics: list[str] | None) -> Any:
        request = message_class("ShareGroupHeartbeatRequest")(
            group_id=self._group_id, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        try:
            self._coordinator = self._coordinator or await self._find()
            response = await self._client.ask(self._coordinator, HEARTBEAT, request)
        except Failed:
            self._coordinator = None
            raise
        if response.error_code in COORDINATOR_ELSEWHERE:
            self._coordinator = None
            raise Failed(f"error {response.error_code}")
        return response

    async def _find(self) -> str:
        request = message_class("FindCoordinatorRequest")(key=self._group_id, key_type=0)
        response = await self._client.any(FIND_COORDINATOR, request)
        if response.error_code != NONE:
            raise Failed(f"error {response.error_code}")
        return f"b{response.node_id}"

    async def _by_leader(self) -> Mapping[str, list[TopicIdPartition]]:
        """Return the assigned partitions by their leaders, and the brokers that wait for acknowledgements."""
        found: dict[str, list[TopicIdPartition]] = {broker: [] for broker in self._held}
        for key in sorted(self._assigned):
            if key not in self._leaders:
                with suppress(Failed):
                    self._leaders[key] = await self._client.leader(self._names[key.topic_id], key.partition)
            if key in self._leaders:
                found.setdefault(self._leaders[key], []).append(key)
        return found

    async def _work(self, broker: str, keys: Sequence[TopicIdPartition]) -> None:
        """Fetch from a broker, and acknowledge in the same request, or before in a request of its own."""
        random = self._client.random
        due = self._due(broker)
        session = self._sessions.get(broker)
        if due and session is not None and session.epoch and (not keys or random.random() < 0.6):
            await self._acknowledge(broker, session, due)
            due = []
        if keys:
            await self._fetch(broker, keys, due)
        session = self._sessions.get(broker)
        if self.habits is not CALM and session is not None and session.epoch and random.random() < STRANGE_SHARE:
            await self._disturb(broker, session)

    async def _disturb(self, broker: str, session: _Session) -> None:
        """Acknowledge a record that the member was never given. Raises Failed."""
        random = self._client.random
        for key in sorted(key for key in session.partitions if key in self._seen)[:1]:
            place = Place(self._names[key.topic_id], key.partition, max(self._seen[key] + random.randint(-15, 3), 0))
            if place not in self._given:
                stranger = Delivery(place, self.member_id, 0, self._now_s, self._now_s, None)
                due = [_Due(stranger, random.choice([ACCEPT, REJECT, RELEASE]), 0.0)]
                response = await self._ask_session(
                    broker, session, SHARE_ACKNOWLEDGE, self._acknowledgement(session, due)
                )
                self._answered(broker, key, (), response.responses[0].partitions[0].error_code)

    def _due(self, broker: str) -> list[_Due]:
        """Take what is to be acknowledged now."""
        held = self._held[broker]
        due = [each for each in held.values() if each.due_s <= self._now_s]
        for each in due:
            if each.kind == RENEW or self._client.random.random() < TWICE_SHARE:
                held[each.delivery] = self._decided(each.delivery)
            else:
                del held[each.delivery]
        return due

    async def _acknowledge(self, broker: str, session: _Session, due: Sequence[_Due]) -> None:
        """Send ShareAcknowledge. Raises Failed."""
        response = await self._send(broker, session, SHARE_ACKNOWLEDGE, self._acknowledgement(session, due), due)
        for each in response.responses:
            for partition in each.partitions:
                key = TopicIdPartition(each.topic_id, partition.partition_index)
                self._answered(broker, key, due, partition.error_code)

    def _acknowledgement(self, session: _Session, due: Sequence[_Due]) -> Any:
        kind = message_class("ShareAcknowledgeRequest")
        topic = kind.AcknowledgeTopic
        topics = [
            topic(
                topic_id=key.topic_id,
                partitions=[
                    topic.AcknowledgePartition(
                        partition_index=key.partition,
                        acknowledgement_batches=self._batches(topic.AcknowledgePartition.AcknowledgementBatch, of_key),
                    )
                ],
            )
            for key, of_key in self._by_partition(due).items()
        ]
        return kind(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            is_renew_ack=any(each.kind == RENEW for each in due),
            topics=topics,
        )

    async def _fetch(self, broker: str, keys: Sequence[TopicIdPartition], due: Sequence[_Due]) -> None:
        """Send ShareFetch. Raises Failed."""
        session = self._sessions.setdefault(broker, _Session())
        if not session.epoch:
            due = []
        is_renewal = any(each.kind == RENEW for each in due)
        request = self._fetch_request(session, keys, due, is_renewal=is_renewal)
        before = {key: self._look(broker, self.member_id, key) for key in session.partitions}
        sent_s = self._now_s
        response = await self._send(broker, session, SHARE_FETCH, request, due)
        acknowledged = {key for key, _ in self._by_partition(due).items()}
        for each in response.responses:
            for partition in each.partitions:
                key = TopicIdPartition(each.topic_id, partition.partition_index)
                if key in acknowledged:
                    self._answered(broker, key, due, partition.acknowledge_error_code)
                if partition.error_code in LEADER_ELSEWHERE:
                    self._leaders.pop(key, None)
                elif partition.error_code != NONE:
                    self._history.violation(f"ShareFetch is answered with error {partition.error_code} for {key}")
                self._take(broker, key, partition, before.get(key), sent_s)

    def _fetch_request(
        self, session: _Session, keys: Sequence[TopicIdPartition], due: Sequence[_Due], *, is_renewal: bool
    ) -> Any:
        random, kind = self._client.random, message_class("ShareFetchRequest")
        forgotten = session.partitions - set(keys)
        added = [key for key in keys if key not in session.partitions]
        session.partitions = set(keys)
        by_partition = self._by_partition(due)
        topic = kind.FetchTopic
        batch = topic.FetchPartition.AcknowledgementBatch
        topics = [
            topic(
                topic_id=key.topic_id,
                partitions=[
                    topic.FetchPartition(
                        partition_index=key.partition,
                        acknowledgement_batches=self._batches(batch, by_partition.get(key, ())),
                    )
                ],
            )
            for key in sorted({*added, *by_partition})
        ]
        forget = [kind.ForgottenTopic(topic_id=key.topic_id, partitions=[key.partition]) for key in sorted(forgotten)]
        return kind(
            group_id=self._group_id,
            member_id=self.member_id,
            share_session_epoch=session.epoch,
            max_wait_ms=0 if is_renewal else 200,
            min_bytes=0 if is_renewal else 1,
            max_bytes=0 if is_renewal else 1 << 20,
            max_records=0 if is_renewal else random.choice([1, 3, 10]),
            batch_size=0 if is_renewal else random.choice([1, 5]),
            share_acquire_mode=random.choice([0, RECORD_LIMIT]),
            is_renew_ack=is_renewal,
            topics=topics,
            forgotten_topics_data=[] if not session.epoch else forget,
        )

    async def _send(
        self, broker: str, session: _Session, api: tuple[int, int], request: Any, due: Sequence[_Due]
    ) -> Any:
        """Send a request of the session, and return its response. Raises Failed."""
        for each in due:
            self._history.sent(each.delivery, each.kind)
        return await self._ask_session(broker, session, api, request)

    async def _ask_session(self, broker: str, session: _Session, api: tuple[int, int], request: Any) -> Any:
        response = await self._client.ask(broker, api, request)
        if response.error_code == NONE:
            session.epoch += 1
            return response
        if response.error_code not in SESSION_IS_GONE:
            self._history.violation(f"API {api[0]} is answered with error {response.error_code}")
        raise Failed(f"error {response.error_code}")

    def _answered(self, broker: str, key: TopicIdPartition, due: Sequence[_Due], code: int) -> None:
        if code not in LEADER_ELSEWHERE and code != NONE:
            self._history.violation(f"an acknowledgement is answered with error {code}")
        now = self._look(broker, self.member_id, key)
        for each in self._by_partition(due).get(key, ()):
            at, ends_s = each.delivery.at, each.delivery.sent_s + self._lock_s
            is_certain = at is not None and at == now and self._now_s < ends_s
            self._history.answered(each.delivery, each.kind, code, self._now_s, is_certain=is_certain)

    def _by_partition(self, due: Iterable[_Due]) -> Mapping[TopicIdPartition, list[_Due]]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        found: dict[TopicIdPartition, list[_Due]] = defaultdict(list)
        for each in sorted(due, key=lambda each: each.delivery.place):
            place = each.delivery.place
            found[TopicIdPartition(ids[place.topic], place.partition)].append(each)
        return found

    def _batches(self, kind: Any, due: Sequence[_Due]) -> list[Any]:
        """Return acknowledgements: neighbours are in one batch, with a type for each."""
        batches = []
        for _, run in groupby(enumerate(due), key=lambda each: each[1].delivery.place.offset - each[0]):
            together = [each for _, each in run]
            first, last = together[0].delivery.place.offset, together[-1].delivery.place.offset
            types = [each.kind for each in together]
            batches.append(kind(first_offset=first, last_offset=last, acknowledge_types=types))
        return batches

    def _take(
        self, broker: str, key: TopicIdPartition, partition: Any, before: Incarnation | None, sent_s: float
    ) -> None:
        """Note what was delivered, and decide what to do with it."""
        at = self._look(broker, self.member_id, key)
        at = at if at == before else None
        counts = {
            offset: each.delivery_count
            for each in partition.acquired_records
            for offset in range(each.first_offset, each.last_offset + 1)
        }
        for offset, value in _records(bytes(partition.records or b"")):
            count = counts.pop(offset, None)
            if count is not None:
                place = Place(self._names[key.topic_id], key.partition, offset)
                delivery = Delivery(place, self.member_id, count, sent_s, self._now_s, at)
                self._history.delivered(delivery, value)
                self._held[broker][delivery] = self._decided(delivery)
                self._given.add(place)
                self._seen[key] = max(self._seen.get(key, 0), offset)
        for offset, count in counts.items():
            place = Place(self._names[key.topic_id], key.partition, offset)
            gap = Delivery(place, self.member_id, count, sent_s, self._now_s, None)
            self._held[broker][gap] = _Due(gap, GAP, self._now_s)
            self._given.add(place)

    def _decided(self, delivery: Delivery) -> _Due:
        """Decide what to do with a record, and when."""
        random, habits, lock_s = self._client.random, self.habits, self._lock_s
        soon_s = self._now_s + random.choice([0, 0, 0.2, lock_s / 2])
        if delivery.place.offset % POISON_EACH == 0:
            return _Due(delivery, RELEASE, soon_s)
        drawn, kinds = random.random(), (RELEASE, REJECT, RENEW)
        for kind, share in zip(kinds, (habits.release, habits.reject, habits.renew), strict=True):
            if drawn < share:
                return _Due(delivery, kind, soon_s)
            drawn -= share
        if drawn < habits.forget:
            return _Due(delivery, ACCEPT, float("inf"))
        if drawn < habits.forget + habits.late:
            return _Due(delivery, random.choice([ACCEPT, REJECT]), self._now_s + lock_s * random.uniform(0.9, 2))
        return _Due(delivery, ACCEPT, soon_s)


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and values of records."""
    position = 0
    while len(data) - position >= HEADER_BYTES:
        header = parse_header(data, position)
        if position + header.size_bytes > len(data):
            return
        if not header.is_control:
            for record in decode_batch(data, position, header, 1 << 20):
                yield header.base_offset + record.offset_delta, bytes(record.value or b"")
        position += header.size_bytes
