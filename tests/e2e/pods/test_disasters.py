"""Objects of a Cluster are deleted by hand, and all disks of a broker are lost.

Only records that no other disk has are lost, and the loss is reported until it is accepted.

`docs/how-to/recover.md` tells users the same.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import Final

import pytest

from e2e.pods.castle import NAME, POLL_S, Castle
from e2e.pods.comes_back import await_another, delete, uid
from e2e.pods.figures import Figures
from e2e.pods.under_traffic import under_traffic
from harness.deadline import wait_for
from harness.stock_client import StockClient
from local_kubernetes.kubectl import PATIENTLY

pytestmark = pytest.mark.soak(only=True)
SECONDS_MAX: Final = 300.0
RECORDS: Final = [b"%d" % number for number in range(1_000)]
LONELY: Final = "lonely"
METRICS_PORT: Final = 9404
LACKING: Final = "barnabas_partitions_lacking_records"


def _config_map(castle: Castle) -> None:
    found = castle.kubectl("get", "configmap", f"-lbarnabas.dev/cluster={NAME}", "-oname").split()
    delete(castle, "configmap", *(each.partition("/")[2] for each in found))


def _services(castle: Castle) -> None:
    names = [f"{NAME}-broker", f"{NAME}-bootstrap", f"{NAME}-bootstrap-outside", f"{NAME}-broker-2-outside"]
    ports = castle.bootstrap
    delete(castle, "service", *names)
    wait_for(lambda: castle.bootstrap, lambda now: now == ports, SECONDS_MAX)


def _stateful_set(castle: Castle) -> None:
    pods = castle.pods()
    delete(castle, "statefulset", f"{NAME}-broker", cascade="orphan")
    castle.await_ready()
    assert castle.pods() == pods, "brokers must not restart"


def test_deleted_owned_objects_are_created_again_and_no_acknowledged_record_is_lost(
    castle: Castle, figures: Figures
) -> None:
    with under_traffic(castle, figures, "ConfigMap, Services and StatefulSet are deleted", "owned"):
        _config_map(castle)
        _services(castle)
        _stateful_set(castle)


def test_losing_a_brokers_disks_loses_only_unreplicated_records_and_the_loss_is_reported(
    castle: Castle, figures: Figures
) -> None:
    castle.create_topic(LONELY, 1, replicas=1, config={"min.insync.replicas": 1}, deletionPolicy="Delete")
    client = StockClient(castle.bootstrap)
    client.write(LONELY, RECORDS)
    leader = client.admin.list_topics(LONELY, timeout=SECONDS_MAX).topics[LONELY].partitions[0].leader
    with under_traffic(castle, figures, "the disks of a broker are lost", "replicated"):
        _lose_disks(castle, leader)
        _await_loss(castle, LONELY, f"the last known log end is {len(RECORDS)}, the log of broker {leader} ends at 0")
        _accept_loss(castle, LONELY)
    client.write(LONELY, RECORDS[:1])
    assert client.read(LONELY) == RECORDS[:1]
    castle.kubectl("delete", "topic", LONELY)


def _lose_disks(castle: Castle, broker: int) -> None:
    """Delete the claims of a broker, then its pod: Kubernetes keeps a claim until no pod uses it."""
    volumes = castle.read("cluster", NAME)["spec"]["storage"]["volumes"]
    claims = [f"volume-{volume['id']}-{NAME}-broker-{broker}" for volume in volumes]
    before = {claim: uid(castle, "pvc", claim) for claim in claims}
    castle.kubectl("delete", "pvc", *claims, "--wait=false")
    wait_for(lambda: castle.conditions().get("ClaimsDeleted", ""), lambda said: claims[0] in said, SECONDS_MAX, POLL_S)
    castle.await_warning(f"ClaimsDeleted: .*{claims[0]}")
    castle.kubectl("delete", "pod", f"{NAME}-broker-{broker}", "--wait=true")
    for claim, was in before.items():
        await_another(castle, "pvc", claim, was)


def _await_loss(castle: Castle, topic_lost: str, what: str) -> None:
    """Wait until the loss is in all conditions, Events, metrics and `barnabas status`."""
    for topic in ("", topic_lost):
        ready = wait_for(partial(castle.condition, "Ready", topic), partial(_tells, what), SECONDS_MAX)
        assert ready["status"] == "False", ready
    assert castle.condition("RecordsLost")["status"] == "True"
    for resource in (f"clusters.barnabas.dev/{castle.name}", f"topics.barnabas.dev/{topic_lost}"):
        wait_for(
            partial(_has_event, castle, resource, rf"Warning +RecordsLost .*{topic_lost}-0"), seconds_max=SECONDS_MAX
        )
    wait_for(lambda: _lacking(castle), lambda told: told == {"1"}, SECONDS_MAX)
    assert f"{topic_lost}-0 is offline because every replica lacks committed records: {what}" in castle.barnabas(
        "status"
    )


def _has_event(castle: Castle, resource: str, pattern: str) -> bool:
    return re.search(pattern, castle.kubectl("describe", resource)) is not None


def _tells(what: str, ready: Mapping[str, str]) -> bool:
    """True if the condition reports the loss; while brokers are not ready, that is the reason instead."""
    return ready["reason"] == "RecordsLost" and what in ready["message"]


def _accept_loss(castle: Castle, topic: str) -> None:
    """Accept the loss; return when it is no longer reported."""
    assert "accepted" in castle.barnabas("accept-loss", "--topic", topic)
    castle.kubectl("wait", "--for=condition=Ready", f"topic/{topic}", PATIENTLY)
    wait_for(lambda: _lacking(castle), lambda told: told == {"0"}, SECONDS_MAX)
    assert "lacks committed records" not in castle.barnabas("status")


def _lacking(castle: Castle) -> set[str]:
    """Return the numbers of partitions that lack records, as the metrics of all brokers have them."""
    pages = [castle.metrics(pod, METRICS_PORT) for pod in castle.pods()]
    return {found[1] if (found := re.search(rf"^{LACKING} (\d+)", page, re.MULTILINE)) else "" for page in pages}
