"""One round of `make proof-jepsen`."""

from pathlib import Path

import pytest

from harness.require import require
from jepsen.history import Outcome
from jepsen.run import Plan, run


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_transactions_of_librdkafka_have_no_anomaly_while_a_leader_is_killed(tmp_path: Path) -> None:
    only = ("kill -9 of the leader of a busy partition",)
    report = run(tmp_path, Plan(1, 1, seconds=0.0, libraries=("librdkafka", "librdkafka"), only=only), print)
    require(not report.skipped, report.skipped)
    assert (report.problems, report.forbidden) == ([], [])
    assert report.outcomes[Outcome.COMMITTED] > 0
    assert report.reads > 0
    assert report.transaction_version == 2
