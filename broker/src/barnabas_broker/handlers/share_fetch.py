"""ShareFetch (78), v1 and v2: a member acquires records of the partitions of its share session (KIP-932).

The request may acknowledge records, too; the response then waits until that is stored. v2 adds the mode record_limit
(KIP-1206) and renewed locks (KIP-1222). A request that finds no records waits until records are committed, released,
or lose their locks.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from barnabas_broker.coordinators.share_delivery.delivery import Delivered
from barnabas_broker.coordinators.share_delivery.led_partition import LedPartition
from barnabas_broker.coordinators.share_delivery.sessions import FINAL_EPOCH, SessionKey, ShareSession
from barnabas_broker.coordinators.share_delivery.share_partition import Wish
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import LEADER_ERRORS, HandlerEnvironment
from barnabas_broker.handlers.share_requests import (
    Outcome,
    acknowledge,
    acknowledgements_of,
    by_topic,
    check_request,
    check_topic,
    leader_fields,
    leader_for,
    leader_id_and_epoch,
    outcomes_of,
)
from barnabas_broker.replication.leader_replica import WaitList
from barnabas_broker.wire.messages import ShareFetchRequest, ShareFetchResponse
from barnabas_core.clock import monotonic_ms
from barnabas_core.errors import ApiError, ErrorCode
from barnabas_core.loop_turns import FairTurn
from barnabas_core.topic_partition import TopicIdPartition

RECORD_LIMIT: Final = 1
"""The acquire mode in which a member gets no more records than it has asked for."""

TopicResponse: TypeAlias = ShareFetchResponse.ShareFetchableTopicResponse
PartitionResponse: TypeAlias = TopicResponse.PartitionData


def share_fetch(
    environment: HandlerEnvironment, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse | Awaitable[ShareFetchResponse]:
    """Acknowledge and acquire records."""
    try:
        key = check_request(environment, context, request)
        _check_renewal(request)
    except ApiError as error:
        return _refused(error)
    return asyncio.ensure_future(_answer(environment, context, request, key))


def _refused(error: ApiError) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=error.code, error_message=str(error))


def _check_renewal(request: ShareFetchRequest) -> None:
    asked = (request.max_bytes, request.min_bytes, request.max_records, request.max_wait_ms)
    if request.is_renew_ack and any(asked):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"max_bytes, min_bytes, max_records and max_wait_ms are {asked}; with is_renew_ack all must be 0",
        )


async def _answer(
    environment: HandlerEnvironment, context: RequestContext, request: ShareFetchRequest, key: SessionKey
) -> ShareFetchResponse:
    turn = context.turn or FairTurn(environment.clock)
    acknowledgements = await acknowledgements_of(request, context.api_version, turn)
    try:
        session = _session(environment, context, request, key, has_acknowledgements=bool(acknowledgements))
    except ApiError as error:
        if error.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED:  # The client tries again at once.
            await _pause(environment, request.max_wait_ms)
        return _refused(error)
    is_final = request.share_session_epoch == FINAL_EPOCH
    if not is_final:
        await _update(session, request, turn)
    begun = await acknowledge(environment, context, key, acknowledgements, turn)
    fetch = _Fetch(environment, context, request, session, turn)
    if not is_final and request.max_records > 0 and request.max_bytes > 0:
        await fetch.run()
    outcomes = await outcomes_of(environment, context, begun)
    if is_final:
        environment.shares.sessions.close(session)
    lock_ms = environment.shares.config_of(key.group_id).record_lock_duration_ms
    return _response(environment, context, fetch, outcomes, lock_ms)


def _session(
    environment: HandlerEnvironment,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    *,
    has_acknowledgements: bool,
) -> ShareSession:
    sessions, epoch = environment.shares.sessions, request.share_session_epoch
    if epoch:
        return sessions.resume(key, epoch)
    if has_acknowledgements:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a request that begins a session cannot acknowledge records")
    return sessions.begin(key, context.connection)


async def _update(session: ShareSession, request: ShareFetchRequest, turn: FairTurn) -> None:
    """Add the partitions of the request to the session, then remove those that it forgets."""
    async for key in turn.along(_asked(request)):
        session.partitions[key] = None
    async for key in turn.along(_forgotten(request)):
        session.partitions.pop(key, None)


def _asked(request: ShareFetchRequest) -> Iterable[TopicIdPartition]:
    for topic in request.topics:
        if topic.topic_id is not None:
            for each in topic.partitions:
                yield TopicIdPartition(topic.topic_id, each.partition_index)


def _forgotten(request: ShareFetchRequest) -> Iterable[TopicIdPartition]:
    for topic in request.forgotten_topics_data:
        if topic.topic_id is not None:
            for index in topic.partitions:
                yield TopicIdPartition(topic.topic_id, index)


async def _pause(environment: HandlerEnvironment, wait_ms: int) -> None:
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = environment.timers.call_later(max(wait_ms, 0) / 1000, over.cancel)
    try:
        await asyncio.wait([over])
    finally:
        timer.cancel()


class _Waiting:
    """The wait of a request for changes of its partitions; it is a DelayedOperation that stays until `leave`.

    Records are offered to one request at a time, so that the others are not woken for them. A request that leaves
    without them passes them on. One with a higher `min_bytes` than 1 may not take them, so it is woken in any case.
    """

    def __init__(self, environment: HandlerEnvironment, wait_ms: int, *, takes_any: bool) -> None:
        self._environment = environment
        self._takes_any = takes_any
        self._until_ms = monotonic_ms(environment.clock) + max(wait_ms, 0)
        self._woken: asyncio.Future[None] | None = None
        self._leave: Callable[[], None] | None = None
        self._led: dict[WaitList, LedPartition] = {}
        self._changed: dict[TopicIdPartition, None] = {}
        self._offered: list[LedPartition] = []
        self.is_over = wait_ms <= 0

    def add(self, led: LedPartition) -> bool:
        """Wait for changes of a share partition, too; return True if the request did not wait for them before."""
        if led.waiters in self._led:
            return False
        self._led[led.waiters] = self._led[led.hosted.waiters] = led
        return True

    @property
    def is_begun(self) -> bool:
        """True if changes are noticed."""
        return self._leave is not None

    def begin(self) -> None:
        """Notice changes from now on."""
        self.leave()
        left_ms = self._until_ms - monotonic_ms(self._environment.clock)
        if not self.is_over:
            self._leave = self._environment.purgatory.watch(self, self._led, max(left_ms, 0) / 1000)

    def try_complete(self, changed: WaitList) -> bool:
        """Note a change that offers records; the request goes on in its own task."""
        led = self._led[changed]
        if not self._takes_any or led.may_be_taken:
            self._changed[led.key] = None
            if self._takes_any:
                led.is_offered = True
                self._offered.append(led)
            self._wake()
        return False

    def expire(self) -> None:
        """Note that the time is over."""
        self.is_over, self._leave = True, None
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def wait(self) -> Iterable[TopicIdPartition]:
        """Return the partitions that have changed since the last call; wait for a change or the end of the time."""
        if not self._changed and not self.is_over:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken
        changed, self._changed = self._changed, {}
        return changed

    def leave(self) -> None:
        """Notice no more changes."""
        if self._leave is not None:
            self._leave()
            self._leave = None
        for led in self._offered:
            if led.is_offered:
                led.is_offered = False
                led.offer()
        self._offered.clear()


class _Fetch:
    """The acquisition of records for one request."""

    def __init__(
        self,
        environment: HandlerEnvironment,
        context: RequestContext,
        request: ShareFetchRequest,
        session: ShareSession,
        turn: FairTurn,
    ) -> None:
        self._environment = environment
        self._context = context
        self._request = request
        self._session = session
        self._turn = turn
        self._records_left = request.max_records
        self._bytes_left = min(request.max_bytes, environment.config.fetch_max_bytes)
        self._waiting = _Waiting(environment, request.max_wait_ms, takes_any=request.min_bytes <= 1)
        self.delivered: dict[TopicIdPartition, Delivered] = {}
        self.errors: dict[TopicIdPartition, ApiError] = {}

    async def run(self) -> None:
        """Acquire records of the partitions of the session; wait while there are none."""
        try:
            keys = self._rotated()
            async for key in self._turn.over(keys):
                self._open(key)
            self._waiting.begin()
            await self._try(keys)
            while not (self.delivered or self.errors or self._waiting.is_over or self._session.is_closed):
                changed = await self._waiting.wait()
                await self._try(keys if self._waiting.is_over else changed)
        finally:
            self._waiting.leave()

    def _rotated(self) -> list[TopicIdPartition]:
        """Return the partitions of the session; each request begins with another one."""
        keys = list(self._session.partitions)
        first = self._session.epoch % len(keys) if keys else 0
        return keys[first:] + keys[:first]

    def _open(self, key: TopicIdPartition) -> LedPartition | None:
        """Return a share partition; None, and an error in the response, if that is not possible."""
        try:
            check_topic(self._environment, self._context, key)
            led = self._environment.shares.open(self._session.key.group_id, key)
        except ApiError as error:
            self.errors[key] = error
            return None
        if self._waiting.add(led) and self._waiting.is_begun:
            self._waiting.begin()
        return led

    async def _try(self, keys: Iterable[TopicIdPartition]) -> None:
        led = []
        for key in keys:
            await self._turn.give_way()
            opened = self._open(key)
            if opened is not None:
                led.append(opened)
        if self._waiting.is_over or self._has_enough(led):
            for each in led:
                await self._turn.give_way()
                if self._records_left > 0 and (self._bytes_left > 0 or not self.delivered):
                    await self._acquire(each)

    def _has_enough(self, led: Iterable[LedPartition]) -> bool:
        """True if there are min_bytes of records; the usual value is 1, and needs no look."""
        wanted = self._request.min_bytes
        if wanted <= 1:
            return True
        shares = self._environment.shares
        return sum(shares.available_bytes(each, self._bytes_left) for each in led) >= wanted

    async def _acquire(self, led: LedPartition) -> None:
        request = self._request
        wish = Wish(self._records_left, request.batch_size, is_strict=request.share_acquire_mode == RECORD_LIMIT)
        try:
            delivered = await self._environment.shares.deliver(
                led, self._session, wish, self._bytes_left, at_least_one=not self.delivered
            )
        except ApiError as error:
            self.errors[led.key] = error
            return
        if delivered is not None:
            self.delivered[led.key] = delivered
            self._bytes_left -= len(delivered.records)
            self._records_left -= sum(each.last - each.first + 1 for each in delivered.acquired)


def _response(
    environment: HandlerEnvironment,
    context: RequestContext,
    fetch: _Fetch,
    outcomes: Mapping[TopicIdPartition, Outcome],
    lock_ms: int,
) -> ShareFetchResponse:
    keys = list(dict.fromkeys((*fetch.delivered, *fetch.errors, *outcomes)))
    leaders = {key: leader_for(environment, context, key, fetch.errors.get(key)) for key in keys}
    leaders.update({key: each.leader for key, each in outcomes.items() if each.leader is not None})
    nothing = Outcome(None)

    def partition(key: TopicIdPartition) -> PartitionResponse:
        fetched, acknowledged = Outcome(fetch.errors.get(key)), outcomes.get(key, nothing)
        leader, delivered = leaders[key], fetch.delivered.get(key)
        return PartitionResponse(
            partition_index=key.partition,
            error_code=fetched.code,
            error_message=fetched.message,
            acknowledge_error_code=acknowledged.code,
            acknowledge_error_message=acknowledged.message,
            current_leader=PartitionResponse.LeaderIdAndEpoch(
                **leader_id_and_epoch(leader, is_unknown=fetched.code in LEADER_ERRORS)
            ),
            records=b"" if delivered is None else delivered.records,
            acquired_records=[] if delivered is None else _acquired(delivered),
        )

    return ShareFetchResponse(
        acquisition_lock_timeout_ms=lock_ms,
        responses=[
            TopicResponse(topic_id=topic_id, partitions=[partition(key) for key in of_topic])
            for topic_id, of_topic in by_topic(keys).items()
        ],
        node_endpoints=leader_fields(ShareFetchResponse, leaders),
    )


def _acquired(delivered: Delivered) -> list[PartitionResponse.AcquiredRecords]:
    return [
        PartitionResponse.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
        for first, last, count in delivered.acquired
    ]
