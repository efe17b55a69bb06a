"""Render metrics in Prometheus' text format 0.0.4, in slices, so that the event loop serves requests in between.

A scrape of 10,000 partitions has 200,000 lines and 20 MB; only one slice is in memory at a time. The client library of
Prometheus renders the whole page at once.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from barnabas_broker.replication.partition import Partition
from barnabas_core.loop_turns import COUNTED_PARTITIONS, METRIC_SAMPLES, in_turns, next_turn, timed

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """The value of a metric with rendered labels such as `topic="flights",partition="0"`; `labels` may be empty."""

    labels: str
    value: float
    suffix: str = ""
    """The suffix that a histogram adds to the metric name."""


class Family(NamedTuple):
    """A metric and the function that returns its samples, which is called at each scrape."""

    name: str
    kind: str
    """The type of the metric: `counter`, `gauge` or `histogram`."""
    help: str
    samples: Callable[[], Iterable[Sample | None]]
    """A function that yields the samples, and None for each object (such as a partition) without a sample.

    The event loop runs other work after every METRIC_SAMPLES yielded values, None included. The function must therefore
    iterate over a copy of data that can change.
    """


def single(name: str, kind: str, help_text: str, value: float) -> Family:
    """Return a family with one sample, which has the given value and no labels."""
    return Family(name, kind, help_text, lambda: [Sample("", value)])


def labels(**pairs: object) -> str:
    """Return the label pairs as they appear between the braces."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs.items())


def escaped(value: str) -> str:
    """Return a label's value as it appears between the quotes."""
    return value.translate(_ESCAPES)


async def render(families: Iterable[Family]) -> AsyncIterator[bytes]:
    """Yield the page slice by slice; a family without samples has only its HELP and TYPE lines."""
    lines: list[str] = []
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        samples = iter(family.samples())
        take = timed(f"metrics {family.name}")(_take)
        while some := take(samples):
            lines += [_line(family.name, sample) for sample in some if sample is not None]
            if len(some) == METRIC_SAMPLES or len(lines) >= METRIC_SAMPLES:
                if lines:
                    yield _text(lines)
                lines = []
                await next_turn()
    yield _text(lines)


def _take(samples: Iterator[Sample | None]) -> list[Sample | None]:
    return list(islice(samples, METRIC_SAMPLES))


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _line(name: str, sample: Sample) -> str:
    name += sample.suffix
    place = f"{name}{{{sample.labels}}}" if sample.labels else name
    return f"{place} {sample.value:.17g}" if isinstance(sample.value, float) else f"{place} {sample.value}"


class TopicTotals(msgspec.Struct):
    """The messages and bytes of one topic, summed over its partitions on this broker."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


class Totals(msgspec.Struct):
    """The counts of partitions, replicated bytes and ISR changes, summed over all partitions of this broker."""

    partitions: int = 0
    led: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    offline: int = 0
    replication_bytes_in: int = 0
    replication_bytes_out: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    topics: defaultdict[str, TopicTotals] = msgspec.field(default_factory=lambda: defaultdict(TopicTotals))

    def add(self, partition: Partition) -> None:
        """Count a partition, and add its bytes, messages and ISR changes to the totals."""
        self.partitions += 1
        self.offline += partition.failure is not None
        self.replication_bytes_in += partition.follower.replication_bytes_in
        self.replication_bytes_out += partition.replication_bytes_out
        self.isr_shrinks += partition.isr_shrinks
        self.isr_expands += partition.isr_expands
        of_topic = self.topics[partition.topic_partition.topic]
        of_topic.messages_in += partition.messages_in
        of_topic.bytes_in += partition.bytes_in
        of_topic.bytes_out += partition.bytes_out
        if partition.leader is not None:
            self._add_led(partition)

    def _add_led(self, partition: Partition) -> None:
        self.led += 1
        self.under_replicated += is_under_replicated(partition)
        self.under_min_isr += is_under_min_isr(partition)
        self.at_min_isr += is_at_min_isr(partition)


class Hosted(NamedTuple):
    """A copy of this broker's partitions for one scrape, because partitions change while the page is rendered."""

    partitions: Sequence[Partition]
    totals: Totals


async def hosted_of(partitions: Iterable[Partition]) -> Hosted:
    """Return a copy of the list of partitions, and the totals over all of them.

    The totals are computed in slices, between which the event loop runs other work.
    """
    hosted = Hosted(list(partitions), Totals())
    async for partition in in_turns(hosted.partitions, COUNTED_PARTITIONS):
        hosted.totals.add(partition)
    return hosted


def by_partition(hosted: Hosted, name: str, help_text: str, value: Callable[[Partition], int | None]) -> Family:
    """Return a gauge with a sample for each partition for which `value` is not None."""

    def samples() -> Iterator[Sample | None]:
        for each in hosted.partitions:
            number, (topic, partition) = value(each), each.topic_partition
            yield None if number is None else Sample(f'topic="{topic}",partition="{partition}"', int(number))

    return Family(name, "gauge", help_text, samples)


def is_under_replicated(partition: Partition) -> bool:
    """True if a replica is not in the ISR."""
    return partition.isr_size < len(partition.state.replicas)


def is_under_min_isr(partition: Partition) -> bool:
    """True if the ISR is smaller than min.insync.replicas, so that produce requests with acks=all are refused."""
    return partition.isr_size < partition.isr_size_min


def is_at_min_isr(partition: Partition) -> bool:
    """True if acks=all would be refused with one replica fewer in the ISR."""
    return partition.isr_size == partition.isr_size_min
