"""Rolls: brokers restart one at a time, the controller last, and clients notice nothing. Dynamic settings restart
no broker, and a restart requested for one pod restarts only that one.
"""

import re
from collections.abc import Callable

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType

from e2e.pods.castle import BROKERS, NAME, POLL_S, Castle, topic_manifest
from e2e.pods.figures import Figures
from e2e.pods.pod_watch import PodWatch
from e2e.pods.under_traffic import under_traffic
from harness.deadline import wait_for
from harness.stock_client import StockClient
from local_kubernetes.kubectl import PATIENTLY

SECONDS_MAX = 300.0
NO_IMAGE = "registry.invalid/barnabas-broker:none"
LIBRARY = "docker.io/library/"
IN_A_ROLL = "made-in-a-roll"
"""A topic with as many replicas as brokers, created while one broker is down."""
ANNOTATION = "barnabas.dev/manual-rolling-update=true"


def _config_and_resources(castle: Castle) -> None:
    """Change a setting that brokers read only at start, and their resources: both cause one roll."""
    spec = castle.read("cluster", NAME)["spec"]
    delay_ms = int(spec["config"].get("group.initial.rebalance.delay.ms", 0))
    cpu = "150m" if spec["brokers"]["resources"]["requests"]["cpu"] == "200m" else "200m"
    castle.patch(
        {
            "config": {"group.initial.rebalance.delay.ms": delay_ms + 1},
            "brokers": {"resources": {"requests": {"cpu": cpu}}},
        }
    )


def _upgrade(castle: Castle) -> None:
    """Upgrade the chart to the same image under another name, after an image that does not exist, whose roll stops at
    the first broker. A listener is added and removed together with that image.
    """
    first = castle.pod_items()[0]["spec"]["containers"][0]["image"]
    if LIBRARY not in first and "/" in first:
        pytest.skip(f"a second name of the image {first} is not known")
    before, listeners = castle.pods(), castle.read("cluster", NAME)["spec"]["listeners"]
    one_more = [*listeners, {"name": "brief", "port": 9099, "type": "nodeport"}]
    castle.patch({"brokers": {"image": NO_IMAGE}, "listeners": one_more})
    wait_for(
        lambda: castle.condition("Ready").get("message", ""), lambda said: "ImagePull" in said, SECONDS_MAX, POLL_S
    )
    castle.await_warning("BrokersNotReady: .*ImagePull")
    assert len(castle.pods().items() & before.items()) == BROKERS - 1
    assert any("brief" in name for name in _services(castle))
    castle.kubectl("apply", "-f-", stdin=topic_manifest(IN_A_ROLL, 1))
    castle.kubectl("wait", "--for=condition=Ready=False", f"topic/{IN_A_ROLL}", PATIENTLY)
    castle.patch({"brokers": {"image": None}, "listeners": listeners})
    castle.kubectl("wait", "--for=condition=Ready", f"topic/{IN_A_ROLL}", PATIENTLY)
    assert castle.warnings("Topic", IN_A_ROLL) == [], "the operator must wait for a restarting broker"
    castle.release("upgrade", f"brokerImage={other_name(first)}")


CAUSES: dict[str, Callable[[Castle], None]] = {
    "another config and other resources": _config_and_resources,
    "helm upgrade with another brokerImage": _upgrade,
}


LONG = pytest.mark.soak(only=True)


def other_name(image: str) -> str:
    return image.removeprefix(LIBRARY) if image.startswith(LIBRARY) else LIBRARY + image


@pytest.mark.parametrize(
    "cause", [each if CAUSES[each] is not _upgrade else pytest.param(each, marks=LONG) for each in CAUSES]
)
def test_brokers_restart_one_by_one_and_the_controller_last(castle: Castle, figures: Figures, cause: str) -> None:
    client = StockClient(castle.bootstrap)
    controller = client.admin.describe_cluster().result(SECONDS_MAX).controller.id
    with under_traffic(castle, figures, f"a roll for {cause}", re.sub(r"[^a-z]+", "-", cause)):
        watch = PodWatch(castle)
        CAUSES[cause](castle)
        wait_for(watch.look, seconds_max=SECONDS_MAX, pause_s=POLL_S)
    # Pin the running image, so that the next release of the chart rolls nothing.
    castle.patch({"brokers": {"image": castle.pod_items()[0]["spec"]["containers"][0]["image"]}})
    assert set(map(len, watch.down)) == {1}
    assert all("ImagePull" in why for why in watch.unready), "the Cluster must stay ready unless a roll stalls"
    assert _by_age(castle)[-1] == f"{NAME}-broker-{controller}"
    assert not any("brief" in name for name in _services(castle))


@LONG
def test_only_the_pod_with_a_restart_annotation_restarts(castle: Castle, figures: Figures) -> None:
    before, asked = castle.pods(), f"{NAME}-broker-1"
    with under_traffic(castle, figures, "one pod is asked to restart", "only-one"):
        castle.patch({"config": {"log.retention.ms": 123_456_789}})
        wait_for(lambda: _told(castle, "log.retention.ms"), lambda found: found == {"123456789"})
        castle.await_ready()
        assert castle.pods() == before
        castle.kubectl("annotate", "pod", asked, ANNOTATION)
        wait_for(lambda: castle.pods().get(asked, before[asked]) != before[asked], bool, SECONDS_MAX, POLL_S)
        castle.await_ready()
    castle.patch({"config": {"log.retention.ms": None}})
    assert {name for name, uid in castle.pods().items() if uid != before[name]} == {asked}
    told = castle.kubectl("get", "events", "--field-selector=reason=BrokerRestarted", "-o=jsonpath={..message}")
    assert "broker 1 restarts: an annotation of the pod requests a restart" in told


def _by_age(castle: Castle) -> list[str]:
    """Return the pods, the oldest first."""
    ages = {pod["metadata"]["name"]: pod["metadata"]["creationTimestamp"] for pod in castle.pod_items()}
    return sorted(ages, key=lambda name: str(ages[name]))


def _services(castle: Castle) -> list[str]:
    return [each["metadata"]["name"] for each in castle.items("service", f"barnabas.dev/cluster={NAME}")]


def _told(castle: Castle, key: str) -> set[str]:
    """Return the values with which brokers run."""
    client = StockClient(castle.bootstrap)
    asked = [ConfigResource(ResourceType.BROKER, str(number)) for number in range(BROKERS)]
    return {client.admin.describe_configs([each])[each].result(SECONDS_MAX)[key].value for each in asked}
