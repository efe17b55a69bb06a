"""Render metrics in Prometheus' text format 0.0.4, in slices, so that the event loop serves requests in between.

A scrape of 10,000 partitions has 200,000 lines and 20 MB; only one slice is in memory at a time. The client library of
Prometheus renders the whole page at once.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas_core.fair_turns import METRIC_SAMPLES, next_turn
from barnabas_core.loop_turns import timed

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
