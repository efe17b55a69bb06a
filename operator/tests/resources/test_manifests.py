"""Manifests are read strictly, and every error names its position, field, value and what is allowed."""

import textwrap

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.topic import Topic
from barnabas_operator.resources.yaml_documents import parse_manifests

HEAD = "apiVersion: barnabas.dev/v1alpha1\n"
TOPIC = HEAD + "kind: Topic\nmetadata: {name: flights}\n"
CLUSTER = HEAD + "kind: Cluster\nmetadata: {name: quickstart}\n"


def errors_of(text: str) -> list[str]:
    return [str(error) for error in parse_manifests({"a.yaml": text}).errors]


def test_a_topic_and_a_cluster_of_one_file_are_read_with_their_defaults() -> None:
    manifests = parse_manifests({"a.yaml": TOPIC + "spec: {partitions: 6}\n---\n" + CLUSTER})
    assert manifests.errors == ()
    (topic,) = manifests.of_kind(Topic)
    (cluster,) = manifests.of_kind(Cluster)
    assert (topic.topic_name, topic.spec.partitions, topic.spec.replicas) == ("flights", 6, None)
    assert (topic.spec.deletion_policy, topic.spec.pause) == ("Retain", False)
    assert cluster.spec.brokers.replicas == 1
    assert [volume.id for volume in cluster.spec.storage.volumes] == [0]
    assert [(listener.name, listener.port) for listener in cluster.spec.listeners] == [("plain", 9092)]
    assert [item.place().line for item in manifests.declared] == [1, 6]


def test_config_values_may_be_any_plain_value_and_null() -> None:
    config = "{a: text, b: 1, c: 1.5, d: true, e: ~, f: 0x10, g: '7', h: &x false, i: *x, j: yes}"
    (topic,) = parse_manifests({"a.yaml": TOPIC + f"spec: {{config: {config}}}"}).of_kind(Topic)
    values = ("text", 1, 1.5, True, None, 16, "7", False, False, "yes")
    assert topic.spec.config == dict(zip("abcdefghij", values, strict=True))
    assert [type(topic.spec.config[key]) for key in "bcdhi"] == [int, float, bool, bool, bool]


def test_empty_documents_between_others_are_skipped() -> None:
    assert errors_of("---\n---\n" + TOPIC + "spec: {}\n---\n") == []


ERRORS = {
    "an unknown field, with the nearest": (
        TOPIC + "spec:\n  replcas: 1\n",
        (
            "a.yaml:5:3: spec.replcas is not a field (did you mean replicas?); allowed: cluster, topicName, "
            "partitions, replicas, config, deletionPolicy, adopt, driftPolicy, pause"
        ),
    ),
    "an unknown field at the top": (
        TOPIC + "spec: {}\nextra: 1\n",
        "a.yaml:5:1: extra is not a field; allowed: apiVersion, kind, metadata, spec, status",
    ),
    "a wrong type": (
        TOPIC + "spec:\n  partitions: six\n",
        "a.yaml:5:15: spec.partitions is 'six' (string); allowed: an integer from 1 to 10000",
    ),
    "a boolean for a number": (
        TOPIC + "spec: {replicas: true}\n",
        "a.yaml:4:18: spec.replicas is true (boolean); allowed: an integer from 1 to 32767",
    ),
    "too many": (
        TOPIC + "spec: {partitions: 10001}\n",
        "a.yaml:4:20: spec.partitions is 10001 (integer); allowed: an integer from 1 to 10000",
    ),
    "a fraction": (
        TOPIC + "spec: {partitions: 1.5}\n",
        "a.yaml:4:20: spec.partitions is 1.5 (number); allowed: an integer from 1 to 10000",
    ),
    "YAML 1.1's yes": (
        TOPIC + "spec: {pause: yes}\n",
        "a.yaml:4:15: spec.pause is 'yes' (string); allowed: true or false",
    ),
    "a list as a config": (
        TOPIC + "spec:\n  config:\n    cleanup.policy: [compact, delete]\n",
        (
            'a.yaml:6:21: spec.config["cleanup.policy"] is a list; '
            'allowed: a string or an integer or a finite number or true or false; write "compact,delete"'
        ),
    ),
    "a config key that is no string": (
        TOPIC + "spec:\n  config:\n    3: x\n",
        "a.yaml:6:5: spec.config has the key 3 (integer); allowed: a string",
    ),
    "a list for a mapping": (TOPIC + "spec:\n- partitions\n", "a.yaml:5:1: spec is a list; allowed: a mapping"),
    "an empty spec": (TOPIC + "spec:\n", "a.yaml:4:1: spec is empty; allowed: a mapping"),
    "a missing field": (
        HEAD + "kind: Topic\nmetadata: {labels: {}}\nspec: {}\n",
        (
            "a.yaml:3:11: metadata.name is missing; allowed: lower-case letters, digits, '-' and '.', beginning and "
            "ending with a letter or digit (RFC 1123)"
        ),
    ),
    "a name that Kubernetes would refuse": (
        HEAD + "kind: Topic\nmetadata:\n  name: Flights\nspec: {}\n",
        (
            "a.yaml:4:9: metadata.name is 'Flights' (string); allowed: lower-case letters, digits, '-' and '.', "
            "beginning and ending with a letter or digit (RFC 1123)"
        ),
    ),
    "another kind": (
        "apiVersion: barnabas.dev/v1alpha1\nkind: Topics\n",
        "a.yaml:2:7: kind is 'Topics' (string); allowed: Cluster or Topic or User or ConsumerGroup",
    ),
    "another version": (
        "kind: Topic\napiVersion: barnabas.dev/v2\nspec: {anything: 1}\n",
        "a.yaml:2:13: apiVersion is 'barnabas.dev/v2' (string); allowed: barnabas.dev/v1alpha1",
    ),
    "no kind": (HEAD, "a.yaml:1:1: kind is missing; allowed: Cluster or Topic or User or ConsumerGroup"),
    "no mapping": (
        "- 1\n- 2\n",
        "a.yaml:1:1: the document is a list; allowed: a mapping with the keys apiVersion, kind, metadata and spec",
    ),
    "a file without a document": (
        "# soon\n",
        "a.yaml:1:1: the file has no resource; add a resource of the kind Cluster or Topic or User or ConsumerGroup",
    ),
    "an empty file": (
        "",
        "a.yaml:1:1: the file has no resource; add a resource of the kind Cluster or Topic or User or ConsumerGroup",
    ),
    "a key twice": (
        "kind: Topic\nkind: Topic\n",
        'a.yaml:2:1: the text is not YAML: found duplicate key "kind" with value "Topic" (original value: "Topic")',
    ),
    "a colon too many": ("kind: Topic: x\n", "a.yaml:1:12: the text is not YAML: mapping values are not allowed here"),
    "a control character": (
        "kind: a\nx: \x07\n",
        "a.yaml:2:4: the text is not YAML: the character '\\x07' is not allowed",
    ),
    "a volume without an id": (
        CLUSTER + "spec:\n  storage:\n    volumes:\n      - {}\n",
        "a.yaml:7:9: spec.storage.volumes[0].id is missing; allowed: an integer from 0 to 999",
    ),
    "no listener": (
        CLUSTER + "spec:\n  listeners: []\n",
        "a.yaml:5:14: spec.listeners has 0 entries; allowed: a list of 1 to 8 entries",
    ),
    "a status that is none": (
        TOPIC + "spec: {}\nstatus: {conditions: [{type: Ready, status: Perhaps, reason: R, lastTransitionTime: T}]}\n",
        "a.yaml:5:45: status.conditions[0].status is 'Perhaps' (string); allowed: False or True or Unknown",
    ),
    "a value that a merge key brought in": (
        "defaults: &d {partitions: none}\n"
        + TOPIC.replace(HEAD, "apiVersion: barnabas.dev/v1alpha1\n")
        + "spec:\n  <<: *d\n",
        "a.yaml:6:3: spec.partitions is 'none' (string); allowed: an integer from 1 to 10000",
    ),
}


@pytest.mark.parametrize(("text", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_an_error_is_reported_with_its_position_and_what_is_allowed(text: str, message: str) -> None:
    assert message in errors_of(text)


def test_positions_count_from_the_start_of_the_file_in_every_document() -> None:
    topic = TOPIC.replace("flights", "a")
    text = f"# head\n--- # one\n{topic}spec: {{}}\n---\n\n{TOPIC}spec:\n  partitions: x\n...\n---\n- --- no\n"
    assert [str(error).partition(": ")[0] for error in parse_manifests({"a.yaml": text}).errors] == [
        "a.yaml:13:15",
        "a.yaml:16:1",
    ]


def test_a_file_with_directives_is_read() -> None:
    assert errors_of("%YAML 1.2\n---\n" + TOPIC + "spec: {partitions: 0}\n") == [
        "a.yaml:6:20: spec.partitions is 0 (integer); allowed: an integer from 1 to 10000"
    ]


def test_all_errors_of_all_documents_and_files_are_reported_at_once() -> None:
    broken = TOPIC + "spec: {partitions: 0, replicas: 0}\n---\n" + CLUSTER + "spec: {volumes: []}\n"
    errors = parse_manifests({"a.yaml": broken, "b.yaml": "x: [\n"}).errors
    assert [(error.place.file, error.place.line) for error in errors] == [
        ("a.yaml", 4),
        ("a.yaml", 4),
        ("a.yaml", 9),
        ("b.yaml", 2),
    ]


def test_a_resource_declared_twice_is_an_error_that_names_both_positions() -> None:
    manifests = parse_manifests({"a.yaml": TOPIC + "spec: {}\n", "b.yaml": "---\n" + TOPIC + "spec: {}\n"})
    assert [str(error) for error in manifests.errors] == [
        "b.yaml:4:18: metadata.name is 'flights', but a.yaml:3:18 already declares this Topic"
    ]


def test_a_resource_in_the_form_of_the_api_server_is_read() -> None:
    text = textwrap.dedent("""\
        apiVersion: barnabas.dev/v1alpha1
        kind: Topic
        metadata:
          name: flights
          namespace: default
          uid: 3f0a
          generation: 2
          creationTimestamp: "2026-01-01T00:00:00Z"
        spec: {partitions: 6}
        status:
          conditions:
            - type: Ready
              status: "True"
              reason: Reconciled
              lastTransitionTime: "2026-01-01T00:00:01Z"
              observedGeneration: 2
          partitions: 6
    """)
    (topic,) = parse_manifests({"a.yaml": text}).of_kind(Topic)
    assert topic.status is not None
    assert topic.status.conditions[0].reason == "Reconciled"
    assert msgspec.convert(msgspec.to_builtins(topic), Topic) == topic


YAML_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["partitions", "replicas", "config", "pause", "topicName", "deletionPolicy", "x"]), YAML_VALUES
    )
)
def test_any_spec_is_either_read_or_refused_with_a_position(spec: dict[str, object]) -> None:
    text = TOPIC + "spec: " + msgspec.json.encode(spec).decode() + "\n"
    manifests = parse_manifests({"a.yaml": text})
    assert (len(manifests.declared) == 1) != bool(manifests.errors)
    assert all(error.place.line in (4, 5) and error.message for error in manifests.errors)
