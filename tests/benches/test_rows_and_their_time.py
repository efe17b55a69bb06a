"""Rows of the bench: peers take turns, a row ends at its time limit, and a missing client does not stop the others."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bench.clients.job import PartMissing
from bench.metrics import Better, Measurement, Metric, median_interval
from bench.peers import peer_kinds
from bench.pool import Pool
from bench.report import cell
from bench.results import RowResult
from bench.row import Group, Row
from bench.run import measure_row, warm_up
from bench.scenarios.stand import QUICK, Clients, Stand, Target, together
from bench.secured_broker import WayIn, client_settings
from bench.secured_cluster import SecuredCluster
from bench.status import Status
from harness.cluster import BarnabasCluster

NUMBER = Metric("number", "number", Better.HIGHER)
GROUP = Group("group", "a group", "kafka", (NUMBER,))


@dataclass
class Counting:
    """A scenario that records the peers on which it ran."""

    peers: list[str] = field(default_factory=list)
    before: Callable[[], None] = lambda: None

    def measure(self, stand: Stand, peer: str) -> Measurement:
        self.peers.append(peer)
        self.before()
        return {"number": float(len(self.peers))}


def stand_of(tmp_path: Path, *, repeats: int = 3, row_s: float = 60.0, told: list[str] | None = None) -> Stand:
    limits = replace(QUICK, repeats=repeats, row_s=row_s, warm_up_s=0.2)
    lines: list[str] = [] if told is None else told
    return Stand(
        peer_kinds(tmp_path),
        Pool({}, tmp_path),
        Pool({}, tmp_path),
        Pool({}, tmp_path),
        Pool({}, tmp_path),
        Clients(tmp_path),
        limits,
        Status(lines.append),
    )


def test_peers_take_turns_and_each_run_is_reported(tmp_path: Path) -> None:
    told: list[str] = []
    scenario = Counting()
    result = measure_row(stand_of(tmp_path, repeats=2, told=told), Row("row", "a row", GROUP, scenario))
    assert scenario.peers == ["barnabas", "kafka", "kafka", "barnabas"]
    assert result.problem is None
    assert told[:2] == ["row, Barnabas, run 1 of 2", "row, Apache Kafka, run 1 of 2"]


def test_a_row_starts_no_repeat_after_its_time_limit_and_reports_it(tmp_path: Path) -> None:
    scenario = Counting()
    result = measure_row(stand_of(tmp_path, repeats=3, row_s=0.0), Row("row", "a row", GROUP, scenario))
    assert scenario.peers == []
    assert result.problem == "repeats 1 to 3, since the 0 s of a row were used up"


def test_a_tls_load_with_three_replicas_uses_the_secured_cluster(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    secured = SecuredCluster(BarnabasCluster(tmp_path, {}, log_dirs=1), "here:1,here:2", authority)
    stand = replace(stand_of(tmp_path), secured_clusters=Pool({"barnabas": lambda _folder: secured}, tmp_path))
    target = stand.target("barnabas", 3, WayIn.SSL)
    assert target == Target("here:1,here:2", (), "", client_settings(WayIn.SSL, authority))


def test_clients_that_run_at_once_are_as_long_as_the_slowest() -> None:
    one = {"records": 10.0, "bytes": 1000.0, "client_cpu_s": 0.5, "seconds": 2.0}
    summed = {"records": 20.0, "bytes": 2000.0, "client_cpu_s": 1.0, "seconds": 3.0}
    assert together([one, {**one, "seconds": 3.0}]) == summed


def test_a_broker_is_warmed_up_by_the_other_clients_if_one_is_missing(tmp_path: Path) -> None:
    def missing() -> None:
        raise PartMissing("no header")

    lacks, works = Counting(before=missing), Counting()
    warm_up(stand_of(tmp_path), "kafka", (lacks, works))
    assert len(lacks.peers) == 1
    assert len(works.peers) > 1


@pytest.mark.parametrize(
    ("count", "interval"),
    [(5, None), (6, (1.0, 6.0)), (9, (2.0, 8.0)), (30, (10.0, 21.0))],
)
def test_the_interval_of_a_median_is_that_of_the_sign_test(count: int, interval: tuple[float, float] | None) -> None:
    assert median_interval([float(number) for number in range(count, 0, -1)]) == interval


def test_a_cell_has_the_interval_of_the_ratios_of_neighbouring_runs() -> None:
    result = RowResult("row")
    for number in range(6):
        result.add("barnabas", {"number": 11.0 + number})
        result.add("kafka", {"number": 10.0 + number})
    assert cell(NUMBER, result, "kafka") == "13.5 / 12.5 = **1.08** (1.07 to 1.10)"
