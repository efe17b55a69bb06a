"""The quotas of clients on this broker, and the use of each quota.

The quotas of a user with a client id are cached until quotas change. Clients with the same quota share a counter: all
clients of a user, of a client id, or of both.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas_broker.metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    AllQuotas,
    client_quotas,
    connection_rates,
    quota_of_client,
)
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.image.shown_documents import ImageChange
from barnabas_core.clock import Clock, monotonic_ms
from barnabas_core.token_bucket import SAMPLES, WINDOW_MS, SampledRate, TokenBucket

COUNTERS_MAX: Final = 10_000
"""The maximum number of counters; without a limit, clients could create any number with new client ids."""
COUNTERS_LOOKED_AT: Final = 16
"""The maximum number of counters to examine when a new counter needs room; the first unused one is dropped."""
CLIENT_ID_CHARS_MAX: Final = 200
"""The number of characters at the beginning of a client id by which quotas distinguish clients."""
FULL_WINDOW_S: Final = (SAMPLES - 1) * WINDOW_MS / 1000
THROTTLE_MS_MAX: Final = 2**31 - 1
"""The longest throttle time in a response, which is an int32."""

Used = SampledRate | TokenBucket


class Limited:
    """A quota's limit, its use by the clients that share the quota, and the time for which they were throttled."""

    __slots__ = ("_clock", "_used", "_wait_ms_max", "client_id", "key", "limit", "throttled_ms", "user")

    def __init__(self, key: str, user: str, client_id: str, used: Used, clock: Clock, wait_ms_max: int) -> None:
        self.key = key
        self.user = user
        self.client_id = client_id
        self.limit = 0.0
        self.throttled_ms = 0
        self._used = used
        self._clock = clock
        self._wait_ms_max = wait_ms_max

    @property
    def is_unused(self) -> bool:
        """True if the recent use is 0, so that the counter can be dropped without effect."""
        return self._used.is_unused(self.limit, monotonic_ms(self._clock))

    def wait_ms(self) -> int:
        """Return the throttle time of the client in ms; 0 if the client is within its quota."""
        return min(self._used.wait_ms(self.limit, monotonic_ms(self._clock)), self._wait_ms_max)

    def count(self, amount: float) -> None:
        """Add an amount to what the clients have used of the quota; a negative amount is given back."""
        self._used.count(amount, self.limit, monotonic_ms(self._clock))

    def throttled(self, throttle_ms: int) -> None:
        """Add a throttle time in ms to the total for the metrics."""
        self.throttled_ms += throttle_ms


class ClientLimits(NamedTuple):
    """The quotas of a user with a client id; None means no limit."""

    produced_bytes: Limited | None
    consumed_bytes: Limited | None
    request_share: Limited | None
    mutations: Limited | None


class ClientQuotas:
    """The quotas of all clients and addresses; `on_change` is called after a change of quotas."""

    def __init__(self, image: MetadataImage, clock: Clock, brokers_listener: str | None) -> None:
        """Initialize the quotas; connections to `brokers_listener`, which only brokers use, have no quotas."""
        self._image = image
        self._clock = clock
        self._brokers_listener = brokers_listener
        self._quotas: AllQuotas = {}
        self._connection_rates: Mapping[str | None, float] = {}
        self._limits: dict[tuple[str, str | None], ClientLimits | None] = {}
        self._counters: OrderedDict[tuple[str, str, str], Limited] = OrderedDict()
        self._addresses: OrderedDict[str, SampledRate] = OrderedDict()
        self.on_change: Callable[[], object] = lambda: None
        image.subscribe(self._changed)
        self._read()

    @property
    def are_set(self) -> bool:
        """True if any client or address has a quota."""
        return bool(self._quotas)

    def _changed(self, change: ImageChange) -> None:
        if change.quotas:
            self._read()
            self.on_change()

    def _read(self) -> None:
        self._quotas = client_quotas(self._image)
        self._connection_rates = connection_rates(self._quotas)
        self._limits.clear()

    def of(self, principal: str, client_id: str | None, listener_name: str) -> ClientLimits | None:
        """Return the quotas of a client; None if it has none."""
        key = principal, client_id
        try:
            return self._limits[key] if listener_name != self._brokers_listener else None
        except KeyError:
            kept_id = client_id and client_id[:CLIENT_ID_CHARS_MAX]
            limits = self._decide(principal.removeprefix("User:"), kept_id or "")
            if len(self._limits) >= COUNTERS_MAX:
                self._limits.clear()
            self._limits[principal, kept_id] = limits
            return limits

    def _decide(self, user: str, client_id: str) -> ClientLimits | None:
        limits = ClientLimits(
            self._limited(PRODUCER_BYTE_RATE, user, client_id, SampledRate, THROTTLE_MS_MAX),
            self._limited(CONSUMER_BYTE_RATE, user, client_id, SampledRate, THROTTLE_MS_MAX),
            self._limited(REQUEST_PERCENTAGE, user, client_id, SampledRate, WINDOW_MS),
            self._limited(CONTROLLER_MUTATION_RATE, user, client_id, TokenBucket, THROTTLE_MS_MAX),
        )
        return limits if any(limits) else None

    def _limited(
        self, key: str, user: str, client_id: str, make: Callable[[], Used], wait_ms_max: int
    ) -> Limited | None:
        found = quota_of_client(self._quotas, key, user, client_id)
        if found is None:
            return None
        types = {kind for kind, _ in found.entity}
        place = key, user if USER in types else "", client_id if CLIENT_ID in types else ""
        limited = self._counters.get(place)
        if limited is None:
            if len(self._counters) >= COUNTERS_MAX:
                self._make_room()
            limited = self._counters[place] = Limited(*place, make(), self._clock, wait_ms_max)
        limited.limit = found.limit
        return limited

    def _make_room(self) -> None:
        """Drop an unused counter, to make room for a new counter.

        If the first COUNTERS_LOOKED_AT counters are all in use, the counter after them is dropped.
        """
        for _ in range(COUNTERS_LOOKED_AT):
            place, limited = self._counters.popitem(last=False)
            if limited.is_unused:
                return
            self._counters[place] = limited
        self._counters.popitem(last=False)

    def counters(self) -> list[Limited]:
        """Return all counters, for the metrics."""
        return list(self._counters.values())

    def connection_wait_ms(self, address: str) -> int:
        """Return the ms that a new connection from `address` must wait; if it need not wait, count it and return 0."""
        limit = self._connection_rates.get(address, self._connection_rates.get(None))
        if limit is None:
            return 0
        rate, now_ms = self._addresses.setdefault(address, SampledRate()), monotonic_ms(self._clock)
        self._addresses.move_to_end(address)
        if len(self._addresses) > COUNTERS_MAX:
            self._addresses.popitem(last=False)
        rate.count(1, limit, now_ms)
        wait_ms = rate.wait_ms(limit, now_ms)
        if wait_ms:
            rate.count(-1, limit, now_ms)
        return min(wait_ms, WINDOW_MS)
