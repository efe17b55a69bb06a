"""A new user's first weeks in a few minutes: two Clusters in two namespaces, and actions in a random order under
clients that never stop. `make soak` does many more of them."""

import os
from pathlib import Path

import pytest

from e2e.pods.figures import Figures
from e2e.pods.providers import local
from e2e.weeks.deck import Plan
from e2e.weeks.run import first_weeks
from harness.require import missing
from harness.soak import seed
from local_kubernetes.binaries import CannotStart

SHORT = (
    "another config of a topic",
    "from three brokers to four and back",
    "a volume grows",
    "another name of the image",
    "PodDisruptionBudget, RoleBinding and NetworkPolicy are deleted",
)
"""Of some seconds each, in any order; `make weeks` and `make soak` have all."""


@pytest.mark.soak(only=True)
def test_nothing_is_lost_in_the_first_weeks(figures: Figures, tmp_path: Path) -> None:
    """On a Kubernetes of its own: definitions, etcd and the API server belong to all who use one."""
    if os.environ.get("E2E") != "local":
        pytest.skip("the provider cannot put back an older etcd")
    plan = Plan(len(SHORT), seed(), SHORT, with_long=False)
    try:
        with local(tmp_path / "cluster") as cluster:
            report = first_weeks(cluster, tmp_path, plan, print)
    except CannotStart as reason:
        missing(reason)
    report.tell(figures)
    assert report.problems == [], f"again: {plan.again}"
