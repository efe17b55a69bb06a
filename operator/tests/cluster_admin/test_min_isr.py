"""Partitions with fewer in-sync replicas than min.insync.replicas, as real brokers report them."""

from pathlib import Path

import pytest

from barnabas_operator.app.cluster_options import SystemClock
from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.cluster_state import Trouble
from harness.cluster import barnabas_cluster
from harness.deadline import wait_for

TOPICS = {"strict": {"min.insync.replicas": "2"}, "lenient": {"min.insync.replicas": "1"}, "default": {}}


@pytest.mark.slow
def test_min_insync_replicas_come_from_the_topic_or_else_from_the_brokers(tmp_path: Path) -> None:
    with barnabas_cluster(tmp_path, brokers=2, properties={"min.insync.replicas": "2"}) as brokers:
        for topic, config in TOPICS.items():
            brokers.create_topic(topic, 1, 2, config=config)
        brokers.stop(1)
        with ClusterAdmin(brokers.bootstrap, SystemClock(), configs_kept_s=60.0) as admin:

            def troubles() -> dict[str, Trouble]:
                found = admin.cluster_state().troubles
                return {each.topic: each for each in found if each.topic in TOPICS and not each.offline}

            found = wait_for(troubles, lambda told: told.keys() == TOPICS.keys())
        assert {topic: each.under_min_isr for topic, each in found.items()} == {
            "strict": True,
            "lenient": False,
            "default": True,
        }
