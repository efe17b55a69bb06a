"""A topic never loses partitions: the API server refuses it, else the operator's webhook, else the operator itself."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from e2e.gates import rules_off, webhooks_off
from e2e.pods.castle import NAME, Castle, topic_manifest
from harness.deadline import wait_for
from harness.stock_client import StockClient

TOPIC = "never-less"
PARTITIONS = 6
DEFINITION = "topics.barnabas.dev"
BY_THE_WEBHOOK = "admission webhook"
SECONDS_MAX = 120.0


class Topic:
    """A topic of six partitions, and who wants fewer."""

    def __init__(self, castle: Castle) -> None:
        self.castle = castle
        self.client = StockClient(castle.bootstrap)
        castle.create_topic(TOPIC, PARTITIONS)

    def refusal(self, *more: str) -> str:
        """What kubectl says to fewer partitions; nothing where they are stored."""
        done = self.castle.ask("apply", "--server-side", *more, "-f-", stdin=topic_manifest(TOPIC, 3))
        return done.stderr if done.returncode != 0 else ""

    def has_a_webhook(self) -> bool:
        """By something that only the operator knows to be wrong."""
        wrong = topic_manifest(TOPIC, PARTITIONS, config={"no.such.setting": "1"})
        done = self.castle.ask("apply", "--server-side", "--dry-run=server", "-f-", stdin=wrong)
        return BY_THE_WEBHOOK in done.stderr

    def has_rules(self) -> bool:
        """The API server looks at them before it asks the webhook."""
        return bool(said := self.refusal("--dry-run=server")) and BY_THE_WEBHOOK not in said

    def partitions(self) -> int:
        return len(self.client.admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)


@pytest.fixture(scope="module")
def topic(installed: Castle) -> Iterator[Topic]:
    installed.await_ready()
    yield Topic(installed)
    installed.kubectl("delete", "topic", TOPIC)


def test_the_api_server_refuses_fewer_partitions_without_asking_anybody(topic: Topic) -> None:
    with webhooks_off(topic.castle.cluster_kubectl, lambda: not topic.has_a_webhook()):
        said = topic.refusal()
    assert "spec.partitions is 3; allowed: 6 or more" in said
    assert BY_THE_WEBHOOK not in said
    assert topic.partitions() == PARTITIONS


def test_the_webhook_refuses_them_where_the_api_server_has_no_rules(topic: Topic) -> None:
    with rules_off(topic.castle.cluster_kubectl, DEFINITION, lambda: not topic.has_rules()):
        said = topic.refusal()
    assert BY_THE_WEBHOOK in said
    assert "spec.partitions is 3; allowed: 6 or more" in said
    assert topic.partitions() == PARTITIONS


def test_the_condition_tells_of_them_where_both_are_passed_by(topic: Topic) -> None:
    castle, kubectl = topic.castle, topic.castle.cluster_kubectl
    with ExitStack() as gates:
        gates.enter_context(webhooks_off(kubectl, lambda: not topic.has_a_webhook()))
        gates.enter_context(rules_off(kubectl, DEFINITION, lambda: not topic.has_rules()))
        assert topic.refusal() == ""
        wait_for(lambda: _ready(castle), lambda found: found["status"] == "False", seconds_max=SECONDS_MAX)
        said = _ready(castle)
        castle.kubectl("apply", "--server-side", "-f-", stdin=topic_manifest(TOPIC, PARTITIONS))
    assert (said["reason"], topic.partitions()) == ("NotSupported", PARTITIONS)
    assert "spec.partitions is 3, the topic has 6; allowed: 6 or more" in said["message"]
    wait_for(lambda: _ready(castle), lambda found: found["status"] == "True", seconds_max=SECONDS_MAX)
    assert castle.read("cluster", NAME)["status"]["readyBrokers"] == 3


def _ready(castle: Castle) -> dict[str, str]:
    (found,) = (each for each in castle.read("topic", TOPIC)["status"]["conditions"] if each["type"] == "Ready")
    return dict(found)
