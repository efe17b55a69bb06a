"""Read messages of a topic into a tray of bounded size, without a group and without a commit."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Condition
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kafka.errors import KafkaError
from kafka.partitioner import murmur2
from kafka.structs import TopicPartition

from barnabas_console.model.messages import Masking, Message, MessageQuery, Progress, matches, may_match

POLL_MS: Final = 250
POLL_RECORDS_MAX: Final = 200
WAIT_S: Final = 1.0
Row = TypeVar("Row")


class Limits(NamedTuple):
    """The limits of one search, after which it ends although there is more."""

    seconds: float
    bytes: int


SEARCH: Final = Limits(60.0, 256 << 20)
EXPORT: Final = Limits(600.0, 1 << 30)
FOLLOW: Final = Limits(3600.0, 1 << 40)


class Tray(Generic[Row]):
    """The rows between the thread that reads and the visitor, bounded by their number and bytes.

    If the tray is full, it drops its oldest row, or with `waits` the reader waits for the visitor.
    """

    def __init__(self, rows_max: int, bytes_max: int, *, waits: bool) -> None:
        self._rows_max, self._bytes_max, self._waits = rows_max, bytes_max, waits
        self._rows: deque[tuple[Row, int]] = deque()
        self._bytes = 0
        self._changed = Condition()
        self.is_closed = False
        self.dropped = 0
        self.progress = Progress()

    def put(self, row: Row, size: int) -> None:
        """Add a row of `size` bytes."""
        with self._changed:
            while self._rows and not self.is_closed and self._is_full(size):
                if self._waits:
                    self._changed.wait(WAIT_S)
                else:
                    self._bytes -= self._rows.popleft()[1]
                    self.dropped += 1
            self._rows.append((row, size))
            self._bytes += size

    def take(self, rows_max: int) -> list[Row]:
        """Return the oldest rows, which leave the tray."""
        with self._changed:
            taken = [self._rows.popleft() for _ in range(min(rows_max, len(self._rows)))]
            self._bytes -= sum(size for _, size in taken)
            self._changed.notify_all()
        return [row for row, _ in taken]

    def close(self) -> None:
        """End the search, because the visitor has gone."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    @property
    def is_over(self) -> bool:
        """True if nothing more will come."""
        return bool(self.progress.end) and not self._rows

    def _is_full(self, size: int) -> bool:
        return len(self._rows) >= self._rows_max or self._bytes + size > self._bytes_max


class Search(NamedTuple, Generic[Row]):
    """One search: `decode` returns a message whose key and value are JSON if they have a schema.

    `render` returns a row and its size in bytes for each message that matches.
    """

    topic: str
    partitions: Sequence[int]
    query: MessageQuery
    decode: Callable[[Message], Message]
    masking: Masking
    limits: Limits
    render: Callable[[Message], tuple[Row, int]]
    steady_s: Callable[[], float]


def run_search(connect: Callable[[], Any], search: Search[Row], tray: Tray[Row]) -> None:
    """Read until the search ends or the tray is closed; the reason is in the tray. Never raises KafkaError.

    `connect` returns a consumer.
    """
    consumer = None
    try:
        consumer = connect()
        for progress in _steps(consumer, search, tray):
            tray.progress = progress._replace(dropped=tray.dropped)
    except Exception as error:  # The visitor must hear the end of each search, whatever ended it.
        text = f"{type(error).__name__}: {error}" if isinstance(error, KafkaError) else str(error)
        tray.progress = tray.progress._replace(end=text or type(error).__name__, is_failed=True)
    finally:
        if consumer is not None:
            consumer.close()


def _steps(consumer: Any, search: Search[Row], tray: Tray[Row]) -> Iterator[Progress]:
    """Yield the progress after each poll, the last time with the reason of the end."""
    query, deadline_s = search.query, search.steady_s() + search.limits.seconds
    places = [TopicPartition(search.topic, each) for each in _asked(search)]
    consumer.assign(places)
    begins, ends = _ranges(consumer, places, query)
    for place, offset in begins.items():
        consumer.seek(place, offset)
    progress = Progress(total=sum(max(0, ends[each] - begins[each]) for each in places))
    size = 0
    while not tray.is_closed:
        at = {each: consumer.position(each) for each in places}
        progress = progress._replace(searched=sum(at[each] - begins[each] for each in places))
        if end := _end(search, progress, size, at, ends, is_late=search.steady_s() > deadline_s):
            yield progress._replace(end=end)
            return
        yield progress
        for message in _polled(consumer, query, ends):
            size += len(message.key or b"") + len(message.value or b"")
            if tray.is_closed or not may_match(message, query):
                continue
            decoded = search.decode(message)
            mask = search.masking.masked
            masked = decoded._replace(key=mask(decoded.key), value=mask(decoded.value))
            if matches(masked, query) and (query.follow or progress.found < query.limit):
                tray.put(*search.render(masked))
                progress = progress._replace(found=progress.found + 1)


def _asked(search: Search[Row]) -> Sequence[int]:
    if search.query.partition is not None:
        return [search.query.partition]
    if search.query.lookup:
        return [partition_of(search.query.lookup.encode(), len(search.partitions))]
    return search.partitions


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition to which producers write this key by default."""
    return int((murmur2(key) & 0x7FFFFFFF) % partitions)


def _ranges(
    consumer: Any, places: Sequence[TopicPartition], query: MessageQuery
) -> tuple[Mapping[TopicPartition, int], Mapping[TopicPartition, int]]:
    """Return for each partition the first offset of the search, and the end of the log now."""
    starts, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    if query.begin.startswith("@"):
        found = consumer.offsets_for_times(dict.fromkeys(places, int(query.begin[1:])))
        return {each: found[each].offset if found.get(each) else ends[each] for each in places}, ends
    if query.begin in ("start", "end"):
        return (starts if query.begin == "start" else ends), ends
    number = int(query.begin)
    wanted = {each: ends[each] + number if number < 0 else number for each in places}
    return {each: min(max(wanted[each], starts[each]), ends[each]) for each in places}, ends


def _end(
    search: Search[Row],
    progress: Progress,
    size: int,
    at: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    is_late: bool,
) -> str:
    """Return why the search ends now; empty if it goes on."""
    if is_late:
        return f"stopped after {search.limits.seconds:.0f} s"
    if size > search.limits.bytes:
        return f"stopped after {search.limits.bytes >> 20} MiB"
    if search.query.follow:
        return ""
    if progress.found >= search.query.limit:
        return f"stopped at the limit of {search.query.limit:,}"
    return "searched to the end" if all(at[each] >= ends[each] for each in ends) else ""


def _polled(consumer: Any, query: MessageQuery, ends: Mapping[TopicPartition, int]) -> Iterator[Message]:
    """Yield the records of one poll; those that came after the search began belong only to a tail."""
    for place, records in consumer.poll(timeout_ms=POLL_MS, max_records=POLL_RECORDS_MAX).items():
        for each in records:
            if query.follow or each.offset < ends[place]:
                yield Message(place.partition, each.offset, each.timestamp, each.key, each.value, each.headers)
