"""The rows of consumer groups with the protocol of KIP-848, and of share groups."""

from collections.abc import Iterator
from typing import Final

from bench.clients.share_members import Way
from bench.metrics import Aim, Better, Metric
from bench.row import Group, Place, Row
from bench.scenarios.consumer_groups import Expressions, Heartbeats, Rebalances
from bench.scenarios.share_groups import IdleGroups, Turnaround, WorkOff

KAFKA: Final = "kafka"
HALF: Final = Aim(times_peer_max=0.5)
REBALANCES: Final = Group(
    "rebalances",
    "Consumer groups (KIP-848): seconds until all partitions are consumed again, in equal shares",
    KAFKA,
    (
        Metric("rest_join_s", "one joins a group at rest, s", Better.LOWER),
        Metric("join_s", "another one joins, s", Better.LOWER, HALF),
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
WORK_OFF: Final = Group(
    "shares",
    "Share groups (KIP-932): 1 KB records of one partition, acknowledged",
    KAFKA,
    (
        Metric("records_per_s", "records/s", Better.HIGHER, Aim(times_peer_min=1.5)),
        Metric("records_per_cpu_s", "records per broker CPU s", Better.HIGHER),
        Metric("rss_mb", "RSS MB", Better.LOWER),
    ),
)
TURNAROUND: Final = Group(
    "share-turnaround",
    "Share groups: from Produce to the stored acknowledgement",
    KAFKA,
    (Metric("p50_us", "p50 us", Better.LOWER), Metric("p99_us", "p99 us", Better.LOWER, HALF)),
)
IDLE_SHARES: Final = Group(
    "share-idle",
    "Share groups: groups of one member that have nothing to do",
    KAFKA,
    (
        Metric("grown_mb", "growth, MB", Better.LOWER, Aim(times_peer_max=0.5)),
        Metric("rss_mb", "RSS MB", Better.LOWER, HALF),
        Metric("cpu_s", "CPU s until each has its partition", Better.LOWER),
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
    yield from _share_rows()


def _share_rows() -> Iterator[Row]:
    ways: tuple[tuple[Way, int, str], ...] = (("each", 4_000, "one by one"), ("batch", 60_000, "by batch"))
    for way, records, words in ways:
        for members in (1, 10, 100):
            title = f"{members} member{'s' if members > 1 else ''}, {words}"
            work = WorkOff(members, records, way)
            yield Row(f"shares.{way}.{members}", title, WORK_OFF, work, members == 10, place=Place.OWN, slow=True)
    yield Row("shares.turnaround", "one record at a time", TURNAROUND, Turnaround(), place=Place.OWN, slow=True)
    yield Row("shares.idle", "1,000 groups", IDLE_SHARES, IdleGroups(1_000), False, place=Place.OWN, slow=True)
