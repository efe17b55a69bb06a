"""Prometheus' text format 0.0.4. Own code because it must not hold up the loop: it renders in slices.

A scrape of 6,000 partitions is some 60,000 lines; between slices the loop serves requests.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from barnabas_core.loop_turns import timed

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SLICE_LINES: Final = 500
_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One value. `labels` is rendered already: `topic="flights",partition="0"`, or empty."""

    labels: str
    value: float
    suffix: str = ""
    """Of the name: what a histogram's samples have."""


class Family(NamedTuple):
    """One metric: its samples are read at the scrape, so the hot path keeps plain counters only."""

    name: str
    kind: str
    """`counter`, `gauge` or `histogram`."""
    help: str
    samples: Callable[[], Iterable[Sample]]


def labels(**pairs: object) -> str:
    """Label pairs as they stand between the braces."""
    return ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in pairs.items())


async def render(families: Iterable[Family]) -> bytes:
    """The page. A family without samples has its head only, so that its name can be looked up."""
    lines: list[str] = []
    slice_end = SLICE_LINES
    for family in families:
        lines.append(f"# HELP {family.name} {family.help}")
        lines.append(f"# TYPE {family.name} {family.kind}")
        for sample in timed(f"metrics {family.name}")(list)(family.samples()):
            lines.append(_line(family.name, sample))
            if len(lines) >= slice_end:
                slice_end += SLICE_LINES
                await asyncio.sleep(0)
    lines.append("")
    return "\n".join(lines).encode()


def _line(name: str, sample: Sample) -> str:
    name += sample.suffix
    place = f"{name}{{{sample.labels}}}" if sample.labels else name
    return f"{place} {sample.value:.17g}" if isinstance(sample.value, float) else f"{place} {sample.value}"
