"""A cluster is upgraded and downgraded broker by broker, under 200 records a second and a consumer group.

The next version is this version with a higher metadata level, which a module that Python imports first sets.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from kafka.admin import UpdateFeatureType

from barnabas_core.conventions import METADATA_LEVEL, METADATA_LEVEL_MAX
from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from e2e.pods.traffic import Traffic
from harness.cluster import BarnabasCluster, barnabas_cluster
from harness.deadline import wait_for
from harness.soak import took

pytestmark = [pytest.mark.slow, pytest.mark.soak(only=True)]

TOPIC: Final = "flights"
PARTITIONS: Final = 3
NEXT: Final = METADATA_LEVEL_MAX + 1
STALL_SECONDS_MAX: Final = 2.0
RAISE: Final = f"""
from barnabas_core import metadata_level

metadata_level.METADATA_LEVEL_MAX = {NEXT}
"""


class Versions:
    """The brokers of a cluster, each of this version or of the next one."""

    def __init__(self, cluster: BarnabasCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        (folder / "sitecustomize.py").write_text(RAISE, encoding="utf-8")

    def choose(self, number: int, *, is_next: bool) -> None:
        """Set the version that the broker has from its next start."""
        environment = self.cluster.brokers[number].environment
        paths = [path for path in environment["PYTHONPATH"].split(":") if path != str(self._folder)]
        environment["PYTHONPATH"] = ":".join([str(self._folder), *paths] if is_next else paths)

    def roll(self, *, is_next: bool) -> None:
        """Restart all brokers in that version one after the other, each after all replicas are in sync."""
        for number in self.cluster.brokers:
            self.choose(number, is_next=is_next)
            self.cluster.restart(number)
            self.cluster.wait_until_full(TOPIC)

    def change_level(self, kind: UpdateFeatureType, level: int) -> None:
        """Do what `kafka-features.sh` does."""
        with ClusterAdmin(self.cluster.bootstrap, SystemClock()) as admin:
            client: Any = admin.client
            assert client.update_features({METADATA_LEVEL: (kind, level)}) == {METADATA_LEVEL: "OK"}


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[Versions]:
    (tmp_path / "next").mkdir()
    with barnabas_cluster(tmp_path / "cluster") as running:
        running.create_topic(TOPIC, PARTITIONS, 3)
        yield Versions(running, tmp_path / "next")


def test_upgrade_and_downgrade_lose_no_record_and_a_too_old_broker_does_not_start(versions: Versions) -> None:
    cluster = versions.cluster
    with Traffic(cluster.bootstrap, TOPIC, PARTITIONS) as traffic:
        versions.roll(is_next=True)
        versions.change_level(UpdateFeatureType.UPGRADE, NEXT)
        versions.choose(0, is_next=False)
        cluster.stop(0)
        old = cluster.brokers[0]
        old.launch()
        why = f"is finalized at level {NEXT}, but this broker version supports levels 1 to {METADATA_LEVEL_MAX}"
        wait_for(lambda: why in old.log_path.read_text(encoding="utf-8"))
        old.close()
        versions.choose(0, is_next=True)
        cluster.start(0)
        cluster.wait_until_full(TOPIC)
        versions.change_level(UpdateFeatureType.SAFE_DOWNGRADE, METADATA_LEVEL_MAX)
        versions.roll(is_next=False)
        traffic.await_progress()
    print(f"a version up and down: {traffic.summary()}")
    took("the longest stall", traffic.longest_stall_s, STALL_SECONDS_MAX)
    assert traffic.problems == []
