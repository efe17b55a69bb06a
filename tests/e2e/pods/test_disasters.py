"""What a Cluster owns is deleted by hand, disks are lost, the Cluster goes and comes again, grows and shrinks.

No record is lost but those that only a lost disk had, and these are told of until somebody accepts it.

`docs/disasters.md` tells people the same.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import pytest
from confluent_kafka import TopicPartition

from e2e.pods.castle import LOOK_S, NAME, Castle, topic_manifest
from e2e.pods.comes_back import await_another, delete, uid
from e2e.pods.figures import Figures
from e2e.pods.providers import Cluster
from e2e.pods.under_traffic import under_traffic
from harness.deadline import wait_for
from harness.stock_client import StockClient

SECONDS_MAX: Final = 300.0
RECORDS: Final = [b"%d" % number for number in range(1_000)]
AGAIN: Final = "doomed"
TOPIC: Final = "singles"
EARLY: Final = "early"
"""There before the other brokers."""
BROKERS: Final = 5
LONELY: Final = "lonely"
EMPTIED: Final = "emptied"
KEPT: Final = "emptied-kept"
OFFSETS: Final = "__consumer_offsets"
GROUP: Final = "early-readers"
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
    assert castle.pods() == pods, "brokers run on"


def test_nothing_acknowledged_is_lost_and_all_is_back_when_owned_objects_are_deleted(
    castle: Castle, figures: Figures
) -> None:
    with under_traffic(castle, figures, "ConfigMap, Services and StatefulSet are deleted", "owned"):
        _config_map(castle)
        _services(castle)
        _stateful_set(castle)


def test_only_what_no_other_disk_has_is_lost_with_the_disks_of_a_broker_and_it_is_told_until_it_is_accepted(
    castle: Castle, figures: Figures
) -> None:
    castle.create_topic(LONELY, 1, replicas=1, config={"min.insync.replicas": 1}, deletionPolicy="Delete")
    client = StockClient(castle.bootstrap)
    client.write(LONELY, RECORDS)
    leader = client.admin.list_topics(LONELY, timeout=30).topics[LONELY].partitions[0].leader
    with under_traffic(castle, figures, "the disks of a broker are lost", "replicated"):
        _lose_disks(castle, leader)
        _await_loss(castle, LONELY, f"last known end {len(RECORDS)}, broker {leader} ends at 0")
        _accept_loss(castle, LONELY)
    client.write(LONELY, RECORDS[:1])
    assert client.read(LONELY) == RECORDS[:1]
    castle.kubectl("delete", "topic", LONELY)


def _lose_disks(castle: Castle, broker: int) -> None:
    """Kubernetes keeps a claim until no pod uses it."""
    volumes = castle.read("cluster", NAME)["spec"]["storage"]["volumes"]
    claims = [f"volume-{volume['id']}-{NAME}-broker-{broker}" for volume in volumes]
    before = {claim: uid(castle, "pvc", claim) for claim in claims}
    castle.kubectl("delete", "pvc", *claims, "--wait=false")
    wait_for(lambda: castle.conditions().get("ClaimsDeleted", ""), lambda said: claims[0] in said, SECONDS_MAX, LOOK_S)
    castle.await_warning(f"ClaimsDeleted: .*{claims[0]}")
    castle.kubectl("delete", "pod", f"{NAME}-broker-{broker}", "--wait=true")
    for claim, was in before.items():
        await_another(castle, "pvc", claim, was)


def _await_loss(castle: Castle, topic_lost: str, what: str) -> None:
    """Returns when it is told wherever one looks."""
    for topic in ("", topic_lost):
        ready = wait_for(partial(castle.condition, "Ready", topic), partial(_tells, what), SECONDS_MAX)
        assert ready["status"] == "False", ready
    assert castle.condition("RecordsLost")["status"] == "True"
    for resource in (f"clusters.barnabas.dev/{castle.name}", f"topics.barnabas.dev/{topic_lost}"):
        assert re.search(rf"Warning +RecordsLost .*{topic_lost}-0", castle.kubectl("describe", resource))
    wait_for(lambda: _lacking(castle), lambda told: told == {"1"}, SECONDS_MAX)
    assert f"{topic_lost}-0 is offline, every replica lacks records: {what}" in castle.barnabas("status")


def _tells(what: str, ready: Mapping[str, str]) -> bool:
    """While brokers are not ready that is the reason, and the loss is told besides."""
    return ready["reason"] == "RecordsLost" and what in ready["message"]


def _accept_loss(castle: Castle, topic: str) -> None:
    """Returns when nothing tells of it any more."""
    assert "accepted" in castle.barnabas("accept-loss", "--topic", topic)
    castle.kubectl("wait", "--for=condition=Ready", f"topic/{topic}", "--timeout=120s")
    wait_for(lambda: _lacking(castle), lambda told: told == {"0"}, SECONDS_MAX)
    assert "lacks records" not in castle.barnabas("status")


def _lacking(castle: Castle) -> set[str]:
    """How many partitions lack records, as every broker tells Prometheus."""
    pages = [castle.metrics(pod, METRICS_PORT) for pod in castle.pods()]
    return {found[1] if (found := re.search(rf"^{LACKING} (\d+)", page, re.MULTILINE)) else "" for page in pages}


def manifest(brokers: int, name: str = AGAIN, **volume: bool) -> str:
    spec = {
        "brokers": {"replicas": brokers, "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}},
        "storage": {"volumes": [{"id": 0, "size": "1Gi", **volume}]},
        "listeners": [{"name": "plain"}, {"name": "outside", "port": 9094, "type": "nodeport"}],
    }
    return json.dumps(
        {"apiVersion": "barnabas.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": name}, "spec": spec}
    )


@pytest.fixture
def doomed(castle: Castle, cluster: Cluster) -> Iterator[Castle]:
    """Another Cluster, of one broker."""
    found = Castle(cluster, AGAIN, 1)
    found.kubectl("apply", "-f-", stdin=manifest(1))
    found.await_ready()
    yield found
    found.close()
    castle.kubectl("patch", "cluster", AGAIN, "--type=merge", '-p={"spec":{"deletionPolicy":"Delete"}}')
    castle.kubectl("delete", "cluster", AGAIN)
    castle.kubectl("delete", "topic", EARLY, TOPIC)


def await_pods(castle: Castle, count: int) -> None:
    wait_for(castle.pods, lambda pods: len(pods) == count, SECONDS_MAX, LOOK_S)


def scale(castle: Castle, brokers: int, **volume: bool) -> None:
    castle.brokers = brokers
    castle.kubectl("apply", "-f-", stdin=manifest(brokers, AGAIN, **volume))
    castle.await_ready()


def claims_of(castle: Castle) -> set[str]:
    """Of all brokers that it has or had."""
    found = castle.kubectl("get", "pvc", f"-lbarnabas.dev/cluster={castle.name}", "-oname").split()
    return {name.partition("/")[2] for name in found}


def brokers_of(castle: Castle, topic: str) -> list[list[int]]:
    """Which have replicas of each partition, as brokers tell."""
    found = StockClient(castle.bootstrap).admin.list_topics(topic, timeout=30).topics[topic].partitions
    return [list(found[number].replicas) for number in sorted(found)]


def widths(castle: Castle) -> set[int]:
    """Of the partitions of __consumer_offsets: how many replicas they have."""
    return set(map(len, brokers_of(castle, OFFSETS)))


def committed(castle: Castle, offset: int | None = None) -> int:
    """Commits one where it is given; what the group has committed."""
    consumer = StockClient(castle.bootstrap).consumer(GROUP)
    if offset is not None:
        consumer.commit(offsets=[TopicPartition(EARLY, 0, offset)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(EARLY, 0)], timeout=30)
    consumer.close()
    return int(found.offset)


def whole(castle: Castle) -> int:
    """How many partitions have all records."""
    client = StockClient(castle.bootstrap)
    return sum(client.read(TOPIC, partition) == RECORDS for partition in range(BROKERS))


def test_a_cluster_that_grows_is_made_again_with_fewer_brokers_and_goes_back_to_one_has_every_record(
    doomed: Castle, figures: Figures
) -> None:
    """Records with one replica, on every broker: those that are too many are emptied before they go."""
    doomed.create_topic(EARLY, 1, replicas=1)
    assert (committed(doomed, 7), widths(doomed)) == (7, {1})
    scale(doomed, BROKERS)
    wait_for(lambda: widths(doomed), lambda found: found == {3}, SECONDS_MAX)
    doomed.create_topic(TOPIC, BROKERS, replicas=1)
    assert sorted(brokers_of(doomed, TOPIC)) == [[number] for number in range(BROKERS)]
    for partition in range(BROKERS):
        StockClient(doomed.bootstrap).write(TOPIC, RECORDS, partition)
    doomed.kubectl("delete", "cluster", AGAIN)
    await_pods(doomed, 0)
    doomed.kubectl("create", "-f-", stdin=manifest(3))
    await_pods(doomed, BROKERS)
    doomed.brokers = 3
    doomed.await_ready()
    read = whole(doomed)
    figures.tell(f"a Cluster of {BROKERS} made again with 3", f"{read} of {BROKERS} partitions are whole")
    assert read == BROKERS
    scale(doomed, 1, deleteClaim=True)
    wait_for(lambda: claims_of(doomed), lambda found: found == {f"volume-0-{AGAIN}-broker-0"}, SECONDS_MAX)
    assert (widths(doomed), committed(doomed), whole(doomed)) == ({1}, 7, BROKERS)


@pytest.fixture
def emptied(castle: Castle, cluster: Cluster) -> Iterator[Castle]:
    """Another Cluster, applied together with its Topic, whose claims go with it."""
    found = Castle(cluster, EMPTIED)
    topic = topic_manifest(KEPT, 1, cluster=EMPTIED, deletionPolicy="Delete")
    found.kubectl("apply", "-f-", stdin=f"{topic}\n---\n{manifest(found.brokers, EMPTIED, deleteClaim=True)}")
    found.await_ready()
    found.kubectl("wait", "--for=condition=Ready", f"topic/{KEPT}", "--timeout=120s")
    yield found
    found.close()
    castle.kubectl("delete", "topic", KEPT)
    castle.kubectl("delete", "cluster", EMPTIED)


def test_a_cluster_whose_claims_went_with_it_is_not_ready_when_it_is_made_again_until_the_loss_is_accepted(
    emptied: Castle,
) -> None:
    """It keeps its topics, and so the partitions whose records are gone from every replica."""
    assert emptied.warnings("Topic", KEPT) == [], "brokers that start for the first time are waited for"
    StockClient(emptied.bootstrap).write(KEPT, RECORDS)
    ends = ", ".join(f"broker {broker} ends at 0" for broker in brokers_of(emptied, KEPT)[0])
    done = emptied.ask("delete", "cluster", EMPTIED)
    assert f"the records on volume 0 of each broker go with Cluster {EMPTIED}" in done.stderr
    wait_for(lambda: claims_of(emptied), lambda found: not found, SECONDS_MAX)
    emptied.kubectl("wait", "--for=condition=Ready=False", f"topic/{KEPT}", "--timeout=120s")
    emptied.kubectl("create", "-f-", stdin=manifest(emptied.brokers, EMPTIED, deleteClaim=True))
    assert wait_for(partial(_ready_or_lost, emptied), bool, SECONDS_MAX, LOOK_S) == {"RecordsLost"}
    _await_loss(emptied, KEPT, f"last known end {len(RECORDS)}, {ends}")
    _accept_loss(emptied, KEPT)
    emptied.await_ready()
    client = StockClient(emptied.bootstrap)
    client.write(KEPT, RECORDS[:1])
    assert client.read(KEPT) == RECORDS[:1]


def _ready_or_lost(castle: Castle) -> set[str]:
    """What the Cluster tells of these two; `Ready` stands for its Topic, too."""
    topic = {each["type"] for each in castle.read("topic", KEPT)["status"]["conditions"] if each["status"] == "True"}
    cluster = castle.read("cluster", EMPTIED).get("status", {}).get("conditions", ())
    return {"Ready", "RecordsLost"} & (topic | {each["type"] for each in cluster if each["status"] == "True"})
