"""Measures rows: peers take turns, a row that cannot be run has a reason, and results are passed on as they come."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from bench.clients.job import NotRun, PartMissing
from bench.metrics import Measurement
from bench.results import RowResult
from bench.row import SUBJECT, Place, Row
from bench.scenarios.load import Consume, Produce, RoundTrips
from bench.scenarios.stand import Scenario, Stand
from bench.secured_broker import WayIn

PROBLEM_LENGTH_MAX: Final = 500
WARM_UP: Final[tuple[Scenario, ...]] = (
    Produce(client="librdkafka", record_bytes=1000, batch_bytes=16_384, codec="none", acks="all"),
    Produce(client="Java", record_bytes=1000, batch_bytes=16_384, codec="lz4", acks="all"),
    RoundTrips(client="Java", mode="poll", acks="1"),
    RoundTrips(client="librdkafka", mode="in-flight", acks="all"),
)
WARM_UP_CLUSTER: Final = (
    Produce(client="librdkafka", record_bytes=1000, batch_bytes=16_384, codec="none", acks="all", replication_factor=3),
    Consume(client="librdkafka", record_bytes=1000, codec="none", replication_factor=3),
    RoundTrips(client="librdkafka", mode="in-flight", acks="all", replication_factor=3),
)
WARM_UP_SECURED: Final = (
    Produce(
        client="librdkafka", record_bytes=1000, batch_bytes=16_384, codec="none", acks="all", way_in=WayIn.SASL_SSL
    ),
    Consume(client="Java", record_bytes=1000, codec="none", way_in=WayIn.SSL),
    RoundTrips(client="Java", mode="in-flight", acks="all", way_in=WayIn.SSL),
)
WARM_UP_SECURED_CLUSTER: Final = (
    *(replace(each, way_in=WayIn.SSL) for each in WARM_UP_CLUSTER),
    replace(WARM_UP_CLUSTER[0], client="Java", way_in=WayIn.SSL),
)
WARM_UPS: Final[Mapping[Place, tuple[Scenario, ...]]] = {
    Place.OWN: (),
    Place.BROKER: WARM_UP,
    Place.CLUSTER: WARM_UP_CLUSTER,
    Place.SECURED: WARM_UP_SECURED,
    Place.SECURED_CLUSTER: WARM_UP_SECURED_CLUSTER,
}


def _attempt(stand: Stand, scenario: Scenario, peer: str) -> Measurement | str:
    """Return the measurement, or why there is none."""
    try:
        return scenario.measure(stand, peer)
    except PartMissing as problem:
        return str(problem)
    except Exception as problem:  # Any error costs only this row; the table shows it.
        stand.forget(peer)  # The next row gets a new server.
        kind = "" if isinstance(problem, NotRun) else f"{type(problem).__name__}: "
        return kind + str(problem)[-PROBLEM_LENGTH_MAX:]


def pairs(peers: tuple[str, str], repeats: int) -> list[tuple[str, str]]:
    """Return A B, B A, A B ...: neither peer always runs right after the other."""
    return [peers if number % 2 == 0 else peers[::-1] for number in range(repeats)]


def measure_row(stand: Stand, row: Row) -> RowResult:
    """Run all repeats on both peers that start in time; a peer that fails is not measured again in this row."""
    repeats = stand.limits.repeats_slow if row.slow else stand.limits.repeats
    result = RowResult(row.key)
    failed: dict[str, str] = {}
    late: str | None = None
    deadline = time.monotonic() + stand.limits.row_s
    for number, peers in enumerate(pairs((SUBJECT, row.group.peer), repeats), 1):
        if time.monotonic() > deadline:
            late = _too_late(number, repeats, stand.limits.row_s)
            break
        for peer in peers:
            if peer in failed:
                continue
            stand.status.run(f"{row.key}, {stand.kinds[peer].title}, run {number} of {repeats}")
            measured = _attempt(stand, row.scenario, peer)
            if isinstance(measured, str):
                failed[peer] = measured
            else:
                result.add(peer, measured)
    result.problem = "; ".join(each for each in (_problem(stand, failed), late) if each) or None
    return result


def _too_late(number: int, repeats: int, row_s: float) -> str:
    which = f"repeat {number}" if number == repeats else f"repeats {number} to {repeats}"
    return f"{which}, since the {row_s:.0f} s of a row were used up"


def _problem(stand: Stand, failed: dict[str, str]) -> str | None:
    """Return one reason if it is the same for both peers, else each peer's."""
    if len(set(failed.values())) == 1 and len(failed) > 1:
        return next(iter(failed.values()))
    return "; ".join(f"{stand.kinds[peer].title}: {why}" for peer, why in failed.items()) or None


def warm_up(stand: Stand, peer: str, scenarios: tuple[Scenario, ...]) -> None:
    """Let a JIT compile the paths that the rows use, and fill the page cache; no result is kept.

    If this machine lacks a client, the others warm up the peer.
    """
    deadline = time.monotonic() + stand.limits.warm_up_s
    able = scenarios
    while able and time.monotonic() < deadline:
        able = tuple(each for each in able if not isinstance(_attempt(stand, each, peer), str))


def measure(stand: Stand, rows: list[Row], keep: Callable[[RowResult], None]) -> None:
    """Measure every row within the time budget; `keep` is called after each."""
    deadline = time.monotonic() + stand.limits.budget_s
    warm: set[str] = set()
    place = Place.OWN
    for row in rows:
        if time.monotonic() > deadline:
            keep(RowResult(row.key, problem="the run's time was used up"))
            continue
        if row.place is not place:
            stand.clear()
            warm.clear()
            place = row.place
        for peer in (SUBJECT, row.group.peer) if WARM_UPS[place] else ():
            if peer not in warm and stand.kinds[peer].has_topics:
                stand.status.run(f"{stand.kinds[peer].title} is warmed up")
                warm_up(stand, peer, WARM_UPS[place])
                warm.add(peer)
        keep(measure_row(stand, row))
