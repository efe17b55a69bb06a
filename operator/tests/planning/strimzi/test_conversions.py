"""Manifests of Strimzi, and their conversions: `manifests/NAME.strimzi.yaml`, `NAME.yaml`, `NAME.notes`."""

from pathlib import Path
from typing import Final

import pytest
from ruamel.yaml import YAML

from barnabas_operator.planning.strimzi.convert import converted
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.schema_check import resource_of
from barnabas_operator.resources.yaml_documents import yaml_text

MANIFESTS: Final = Path(__file__).parent / "manifests"
NAMES: Final = sorted(file.name.removesuffix(".strimzi.yaml") for file in MANIFESTS.glob("*.strimzi.yaml"))
KAFKA: Final = """
apiVersion: kafka.strimzi.io/v1beta2
kind: Kafka
metadata: {name: quay}
spec:
  kafka:
    replicas: 1
    storage: {type: persistent-claim, size: 10Gi}
    listeners: [{name: plain, port: 9092, type: internal, tls: false}]
"""


@pytest.mark.parametrize("name", NAMES)
def test_manifests_are_converted_as_in_the_stored_files(name: str) -> None:
    file = MANIFESTS / f"{name}.strimzi.yaml"
    conversion = converted({file.name: file.read_text()})
    assert conversion.errors == ()
    printed = "---\n".join(map(yaml_text, conversion.manifests))
    assert printed == (MANIFESTS / f"{name}.yaml").read_text()
    notes = [str(note) for note in conversion.notes if "would be refused" not in note.message]
    assert notes == (MANIFESTS / f"{name}.notes").read_text().splitlines()
    for manifest in YAML(typ="safe").load_all(printed):
        assert resource_of(KINDS[manifest["kind"]].resource, manifest).metadata.name == manifest["metadata"]["name"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "replicas: 1",
            "replicas: one",
            "kafka:7:15: Kafka quay: spec.kafka.replicas is 'one' (string); allowed: an integer",
        ),
        (
            "    replicas: 1\n",
            "",
            (
                "kafka:7:5: Kafka quay: spec.kafka.replicas is missing; allowed: the number of brokers,"
                " or a KafkaNodePool whose label strimzi.io/cluster names this Kafka"
            ),
        ),
        (
            "persistent-claim",
            "tape",
            (
                "kafka:8:21: Kafka quay: spec.kafka.storage.type is 'tape' (string); allowed: jbod or persistent-claim"
                " or ephemeral"
            ),
        ),
        (
            "name: plain",
            "name: Plain",
            (
                "kafka:2:1: Kafka quay: the converted Cluster is invalid: spec.listeners[0].name is 'Plain' (string);"
                " allowed: at most 11 lower-case letters and digits"
            ),
        ),
        (
            "type: internal",
            "type: ingress",
            (
                "kafka:9:16: Kafka quay: spec.kafka.listeners has no listener that can be converted;"
                " the first listener has this problem: the type ingress has no counterpart in Barnabas;"
                " use nodeport or loadbalancer"
            ),
        ),
        (
            "v1beta2",
            "v1alpha1",
            (
                "kafka:2:13: Kafka quay: apiVersion is kafka.strimzi.io/v1alpha1; allowed: kafka.strimzi.io/v1"
                " or kafka.strimzi.io/v1beta2 or kafka.strimzi.io/v1beta1"
            ),
        ),
        ("name: quay", "label: quay", "kafka:2:1: Kafka: metadata.name is missing; allowed: a string"),
        ("  kafka:", "  kafka: [", "kafka:8:12: the text is not YAML: expected ',' or ']', but got ':'"),
    ],
)
def test_an_error_names_file_document_and_field(old: str, new: str, message: str) -> None:
    errors = converted({"kafka": KAFKA.replace(old, new)}).errors
    assert [str(error) for error in errors] == [message]


def test_a_node_pool_without_its_kafka_is_an_error() -> None:
    pool = KAFKA.replace("kind: Kafka", "kind: KafkaNodePool").replace(
        "{name: quay}", "{name: pool, labels: {strimzi.io/cluster: quay}}"
    )
    message = (
        'pool:4:11: KafkaNodePool pool: metadata.labels["strimzi.io/cluster"] is quay;'
        " allowed: the name of a Kafka resource in the same namespace"
    )
    assert [str(error) for error in converted({"pool": pool}).errors] == [message]


def test_a_note_reports_a_conversion_that_the_operator_would_refuse() -> None:
    (note,) = converted({"kafka": KAFKA.replace("name: quay", "name: quay.north")}).notes
    assert (
        "the operator would refuse the Cluster; edit it before you apply it: metadata.name is quay.north"
        in note.message
    )


def test_an_unsupported_authorization_type_is_converted_to_simple() -> None:
    listener = "tls: false, authentication: {type: scram-sha-512}"
    text = KAFKA.replace("tls: false", listener).replace(
        "    storage:", "    authorization: {type: keycloak, superUsers: [captain]}\n    storage:"
    )
    (cluster,) = converted({"kafka": text}).manifests
    assert cluster["spec"]["authorization"] == {"type": "simple", "superUsers": ["captain"]}
