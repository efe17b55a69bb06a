"""The rows of consumer groups with the protocol of KIP-848."""

from collections.abc import Iterator
from typing import Final

from bench.metrics import Aim, Better, Metric
from bench.row import Group, Place, Row
from bench.scenarios.consumer_groups import Expressions, Heartbeats, Rebalances

KAFKA: Final = "kafka"
HALF: Final = Aim(times_peer_max=0.5)
REBALANCES: Final = Group(
    "rebalances",
    "Consumer groups (KIP-848): seconds until all partitions are consumed again, in equal shares",
    KAFKA,
    (
        Metric("join_s", "one joins, s", Better.LOWER, HALF),
        Metric("stopped_percent", "partitions that stop for it, %", Better.LOWER),
        Metric("stopped_s", "the longest stop of one, s", Better.LOWER, HALF),
        Metric("leave_s", "one leaves, s", Better.LOWER, HALF),
        Metric("die_s", "one dies, s after its session", Better.LOWER, Aim(times_peer_max=1.0)),
        Metric("roll_s", "all are replaced, s", Better.LOWER, HALF),
    ),
)
HEARTBEATS: Final = Group(
    "heartbeats",
    "Consumer groups (KIP-848): memory, and CPU time of a heartbeat",
    KAFKA,
    (
        Metric("grown_mb", "growth, MB", Better.LOWER, Aim(times_peer_max=0.1)),
        Metric("beat_us", "CPU us a heartbeat", Better.LOWER),
    ),
)
EXPRESSIONS: Final = Group(
    "expressions",
    "Consumer groups (KIP-848): members with a regular expression each",
    KAFKA,
    (
        Metric("taken_s", "until all topics are consumed, s", Better.LOWER, HALF),
        Metric("late_s", "until one more is, s", Better.LOWER, Aim(times_peer_max=1.0)),
        Metric("cpu_s", "CPU s of the broker", Better.LOWER),
    ),
)


def group_rows() -> Iterator[Row]:
    """Return the rows, each with new servers."""
    for members, partitions, quick in ((20, 200, True), (100, 1_000, False)):
        title = f"{members} members, {partitions:,} partitions"
        scenario = Rebalances(members, partitions)
        yield Row(f"rebalances.{members}", title, REBALANCES, scenario, quick, place=Place.OWN, slow=True)
    for groups, of_one, quick in ((500, 100, True), (10_000, 2_000, False)):
        title = f"{groups:,} groups of one member, and one of {of_one:,}"
        beats = Heartbeats(groups, of_one)
        yield Row(f"heartbeats.{groups}", title, HEARTBEATS, beats, quick, place=Place.OWN, slow=True)
    for topics, members, quick in ((1_000, 20, True), (10_000, 100, False)):
        title = f"{topics:,} topics, {members} expressions"
        expressions = Expressions(topics, members)
        yield Row(f"expressions.{topics}", title, EXPRESSIONS, expressions, quick, place=Place.OWN, slow=True)
