"""What a row measures, which direction is better, and the aims. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import comb
from statistics import median
from typing import Final

# Two runs of the same thing on this kind of machine differ by up to this; a smaller difference is no miss.
NOISE: Final = 0.05

Measurement = Mapping[str, float]


class Better(Enum):
    """The direction in which a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What the subject should reach: a factor over the peer, an absolute limit, or both."""

    times_peer_min: float | None = None
    times_peer_max: float | None = None
    value_min: float | None = None
    value_max: float | None = None

    def met(self, value: float, peer: float | None) -> bool | None:
        """Return whether the aim is met, or None if it needs a peer that was not measured."""
        if self.value_max is not None and value >= self.value_max:
            return False
        if self.value_min is not None and value < self.value_min:
            return False
        if self.times_peer_min is None and self.times_peer_max is None:
            return True
        if peer is None:
            return None
        over = self.times_peer_min is None or value >= peer * self.times_peer_min
        return over and (self.times_peer_max is None or value <= peer * self.times_peer_max)

    def __str__(self) -> str:
        parts = (
            (self.times_peer_min, "at least {:g} x"),
            (self.times_peer_max, "at most {:g} x"),
            (self.value_min, "at least {:g}"),
            (self.value_max, "under {:g}"),
        )
        return ", ".join(text.format(value) for value, text in parts if value is not None)


NO_SLOWER: Final = Aim(times_peer_min=1 - NOISE)
NO_LONGER: Final = Aim(times_peer_max=1 + NOISE)


@dataclass(frozen=True, slots=True)
class Metric:
    """One number of a measurement: `name` is its key there."""

    name: str
    title: str
    better: Better
    aim: Aim | None = None


MB_PER_S: Final = Metric("mb_per_s", "MB/s", Better.HIGHER, NO_SLOWER)
MB_PER_CPU_S: Final = Metric("mb_per_cpu_s", "MB per broker CPU s", Better.HIGHER, Aim(times_peer_min=1.5))
CPU_S_PER_GB: Final = Metric("cpu_s_per_gb", "broker CPU s/GB", Better.LOWER)
CLIENT_CPU_S_PER_GB: Final = Metric("client_cpu_s_per_gb", "client CPU s/GB", Better.LOWER)
P50_US: Final = Metric("p50_us", "p50 us", Better.LOWER)
P99_US: Final = Metric("p99_us", "p99 us", Better.LOWER, NO_LONGER)
REQUESTS_PER_S: Final = Metric("requests_per_s", "requests/s", Better.HIGHER, NO_SLOWER)
REQUESTS_PER_CPU_S: Final = Metric("requests_per_cpu_s", "requests per broker CPU s", Better.HIGHER)
THROUGHPUT: Final = (MB_PER_S, MB_PER_CPU_S, CPU_S_PER_GB, CLIENT_CPU_S_PER_GB)
RSS_MB: Final = Metric("rss_mb", "RSS MB", Better.LOWER, NO_LONGER)
CREATE_S: Final = Metric("create_s", "create, s", Better.LOWER, NO_LONGER)
MANY_START_S: Final = Metric("start_s", "start to first acknowledged record, s", Better.LOWER, NO_LONGER)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval that has the median with at least 95 % for any distribution, or None for under six values.

    The median is below the k smallest values with the probability that fewer than k of n tosses are heads.
    """
    count, leaves_out, chance = len(values), 0, 0.0
    while (chance := chance + comb(count, leaves_out) / 2**count) <= 0.025:
        leaves_out += 1
    if leaves_out == 0:
        return None
    ordered = sorted(values)
    return ordered[leaves_out - 1], ordered[-leaves_out]


def throughput(payload_bytes: float, seconds: float, broker_cpu_s: float, client_cpu_s: float) -> Measurement:
    """Return the four throughput metrics of one run; bytes are the payload's, before compression."""
    megabytes = payload_bytes / 1e6
    return {
        "mb_per_s": megabytes / seconds,
        "mb_per_cpu_s": megabytes / broker_cpu_s,
        "cpu_s_per_gb": broker_cpu_s / megabytes * 1e3,
        "client_cpu_s_per_gb": client_cpu_s / megabytes * 1e3,
    }


def medians(runs: list[Measurement]) -> Measurement:
    """Return the median of each metric over the repeats."""
    names = {name for run in runs for name in run}
    return {name: median(run[name] for run in runs if name in run) for name in sorted(names)}
