"""The metrics of event loop turns; a long turn delays all other work of the broker."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from barnabas_broker.server.metrics.exposition import Family, Sample, labels


class Turn(NamedTuple):
    """A finished turn (iteration) of the event loop.

    `cpu_s` is the CPU time of the turn, which is less than `seconds` if the process waited for a processor.
    """

    ended_s: float
    seconds: float
    cpu_s: float
    what: str
    """A short label of the code that took most of the turn."""


def loop_families(
    bounds_s: Sequence[float],
    counts: Sequence[int],
    total_s: Callable[[], float],
    longest: Callable[[], Turn | None],
) -> list[Family]:
    """Return the metric families of the event loop's turns.

    `counts` has the number of turns in each bucket of `bounds_s`, and at its end the number of longer turns.
    """

    def buckets() -> Iterator[Sample]:
        sums = list(accumulate(counts))
        for bound, count in zip((*bounds_s, "+Inf"), sums, strict=True):
            yield Sample(labels(le=bound), count, "_bucket")
        yield Sample("", total_s(), "_sum")
        yield Sample("", sums[-1], "_count")

    def of_longest(value: Callable[[Turn], float]) -> list[Sample]:
        turn = longest()
        return [] if turn is None else [Sample(labels(what=turn.what), value(turn))]

    return [
        Family(
            "barnabas_loop_turn_seconds",
            "histogram",
            "Duration in seconds of the iterations of the event loop",
            buckets,
        ),
        Family(
            "barnabas_loop_longest_turn_seconds",
            "gauge",
            "Duration in seconds of the longest iteration of the event loop in the last minute, by the code that used "
            "most of that time",
            lambda: of_longest(lambda turn: turn.seconds),
        ),
        Family(
            "barnabas_loop_longest_turn_cpu_seconds",
            "gauge",
            "CPU seconds that the longest iteration of the event loop in the last minute used",
            lambda: of_longest(lambda turn: turn.cpu_s),
        ),
    ]
