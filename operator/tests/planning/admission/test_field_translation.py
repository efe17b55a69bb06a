"""A refusal of the API server is translated to the fields of the Cluster from which the object was made."""

import pytest

from barnabas_operator.planning.admission import in_declared_fields

OVER_ITS_LIMIT = 'Invalid value: "96Mi": must be less than or equal to memory limit of 64Mi'
BROKERS = 'StatefulSet.apps "main-broker" is invalid: '
EXPORTER = 'Deployment.apps "main-lag-exporter" is invalid: '
TYPED = "failed to create typed patch object (air/main-lag-exporter; apps/v1, Kind=Deployment): "


@pytest.mark.parametrize(
    ("kind", "said", "told"),
    [
        (
            "StatefulSet",
            f"{BROKERS}spec.template.spec.containers[0].resources.requests: {OVER_ITS_LIMIT}",
            f"spec.brokers.resources.requests: {OVER_ITS_LIMIT}",
        ),
        (
            "Deployment",
            f"{EXPORTER}spec.template.spec.containers[0].resources.requests: {OVER_ITS_LIMIT}",
            f"spec.lagExporter.resources.requests: {OVER_ITS_LIMIT}",
        ),
        (
            "Deployment",
            f"{EXPORTER}spec.template.spec.containers[0].env[0].name: Required value",
            "spec.lagExporter.template.container.env[0].name: Required value",
        ),
        (
            "Deployment",
            f'{TYPED}errors:\n  .spec.template.spec.containers[name="lag-exporter"].env: expected list, got &{{"a"}}',
            'spec.lagExporter.template.container.env: expected list, got &{"a"}',
        ),
        (
            "Deployment",
            f"{TYPED}.spec.template.spec.tolerance: field not declared in schema",
            "spec.lagExporter.template.pod.spec.tolerance: field not declared in schema",
        ),
        (
            "Deployment",
            f'{EXPORTER}spec.template.labels: Invalid value: "a b"',
            'spec.lagExporter.template.pod.metadata.labels: Invalid value: "a b"',
        ),
        (
            "Job",
            'Job.batch "a-driver" is invalid: spec.template.spec.tolerations[0].effect: Unsupported value: "No"',
            'spec.template.pod.spec.tolerations[0].effect: Unsupported value: "No"',
        ),
        (
            "PodDisruptionBudget",
            "failed to create typed patch object (air/main; policy/v1, Kind=X): .spec.x: field not declared in schema",
            "spec.x: field not declared in schema",
        ),
    ],
)
def test_a_refusal_names_the_fields_of_the_cluster(kind: str, said: str, told: str) -> None:
    assert in_declared_fields(kind, said) == told
