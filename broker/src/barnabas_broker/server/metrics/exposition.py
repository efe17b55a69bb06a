"""Prometheus' text format 0.0.4. Own code because it must not hold up the loop: it renders in slices.

A scrape of 10,000 partitions is 200,000 lines and 20 MB; between slices the loop serves requests, and only one slice is
in memory.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas_core.fair_turns import METRIC_SAMPLES, next_turn
from barnabas_core.loop_turns import timed

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One value. `labels` is rendered already: `topic="flights",partition="0"`, or empty."""

    labels: str
    value: float
    suffix: str = ""
    """The suffix of the name, for samples of a histogram."""


class Family(NamedTuple):
    """One metric: its samples are read at the scrape, so the hot path keeps plain counters only."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    samples: Callable[[], Iterable[Sample | None]]
    """The function that gives the samples; None in place of one that has no value yet.

    After each METRIC_SAMPLES of either, other work gets its turn, so what is walked over then must be a list of its
    own.
    """


def single(name: str, kind: str, help_text: str, value: float) -> Family:
    """A family of one sample without labels, as it is now."""
    return Family(name, kind, help_text, lambda: [Sample("", value)])


def labels(**pairs: object) -> str:
    """Label pairs as they stand between the braces."""
    return ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs.items())


def escaped(value: str) -> str:
    """A label's value as it stands between the quotes."""
    return value.translate(_ESCAPES)


async def render(families: Iterable[Family]) -> AsyncIterator[bytes]:
    """The page, a slice at a time. A family without samples has its head only, so that its name can be looked up."""
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
