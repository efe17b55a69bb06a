"""A resource that is written as YAML is read back unchanged."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from barnabas_operator.resources.cluster import (
    Brokers,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    ListenerStatus,
    Storage,
    Volume,
)
from barnabas_operator.resources.kind import Condition, ObjectMeta
from barnabas_operator.resources.topic import ConfigValue, Topic, TopicSpec, TopicStatus
from barnabas_operator.resources.yaml_documents import parse_manifests, resources_text

AMBIGUOUS = ["yes", "NULL", "1", "1e3", "0x1", "~", "a: b", "a #b", "-", "on", "2024-01-01"]
TEXTS = st.text(max_size=12) | st.sampled_from(AMBIGUOUS)
CONFIG_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(config=st.dictionaries(TEXTS, CONFIG_VALUES, max_size=5), label=TEXTS, why=TEXTS)
def test_any_config_and_message_are_read_back_unchanged(config: dict[str, ConfigValue], label: str, why: str) -> None:
    condition = Condition(type="Ready", status="False", reason="R", message=why, last_transition_time="2026-01-01")
    written = Topic(
        metadata=ObjectMeta(name="t", labels={label: why}),
        spec=TopicSpec(config=config),
        status=TopicStatus(conditions=(condition,), partitions=3),
    )
    manifests = parse_manifests({"a.yaml": resources_text([written])})
    assert manifests.errors == ()
    assert manifests.declared[0].resource == written


def test_the_yaml_text_has_the_form_that_people_write() -> None:
    status = ClusterStatus(listeners=(ListenerStatus(name="plain", bootstrap_servers="127.0.0.1:9092"),))
    spec = ClusterSpec(brokers=Brokers(replicas=3), storage=Storage(volumes=(Volume(id=0), Volume(id=1))))
    cluster = Cluster(metadata=ObjectMeta(name="quickstart"), spec=spec, status=status)
    text = resources_text([cluster, Topic(metadata=ObjectMeta(name="t"), spec=TopicSpec(config={}))])
    assert text.splitlines()[:9] == [
        "apiVersion: barnabas.dev/v1alpha1",
        "kind: Cluster",
        "metadata:",
        "  name: quickstart",
        "spec:",
        "  brokers:",
        "    replicas: 3",
        "  storage:",
        "    volumes:",
    ]
    assert '  - name: plain\n      bootstrapServers: "127.0.0.1:9092"' in text
    assert len(list(YAML(typ="safe").load_all(text))) == 2
