"""The manifests and fields in pages agree with the types."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from ruamel.yaml import YAML

from barnabas_operator.planning.brokers.local_properties import cluster_problems
from barnabas_operator.planning.brokers.pod_properties import pod_problems
from barnabas_operator.planning.maintenance.run_checks import run_problems
from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.cluster_kind import KINDS
from barnabas_operator.resources.crd import crd_of
from barnabas_operator.resources.kind import Json, Kind
from barnabas_operator.resources.maintenance_run import MAINTENANCE_JOB, MaintenanceJob
from barnabas_operator.resources.schema_check import resource_of
from barnabas_operator.resources.yaml_documents import parse_manifests

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(page for page in (*(ROOT / "docs").rglob("*.md"), ROOT / "README.md") if "```yaml" in page.read_text())
EXAMPLES = sorted(file for file in (ROOT / "examples").rglob("*.yaml") if "barnabas.dev/v1" in file.read_text())
TRANSLATION = (ROOT / "docs" / "from-strimzi.md").read_text()


def manifests_of(page: Path) -> Iterator[str]:
    return (block for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.S) if "barnabas.dev/" in block)


def problems_of(file: Path, text: str) -> Iterator[str]:
    """Yield the problems of the manifests for `barnabas up` or for Kubernetes, depending on the file."""
    found = parse_manifests({file.name: text})
    assert found.errors == ()
    for each in found.declared:
        if isinstance(each.resource, Cluster):
            is_local = {"laptop.md", "quickstart"} & {file.name, file.parent.name}
            of_pods = resource_of(Cluster, cast(Json, each.document.plain))
            yield from (said for _, said in (cluster_problems(each.resource) if is_local else pod_problems(of_pods)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_manifests_in_pages_are_valid(page: Path) -> None:
    for text in manifests_of(page):
        if f"kind: {MAINTENANCE_JOB.name}" in text:  # `barnabas up` does not read it.
            run = resource_of(MaintenanceJob, YAML(typ="safe").load(text))
            assert list(run_problems(run.spec)) == []
            continue
        assert list(problems_of(page, text)) == []


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: str(file.relative_to(ROOT)))
def test_examples_are_valid(file: Path) -> None:
    documents = file.read_text().split("\n---\n")  # Some are of Kubernetes' own kinds.
    ours = "\n---\n".join(each for each in documents if "apiVersion: barnabas.dev/" in each)
    assert list(problems_of(file, ours)) == []


def has_field(kind: Kind, path: str) -> bool:
    """True if the schema has this field; below a field with free content all fields are allowed."""
    schema: Any = crd_of(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in path.replace("[]", "").split("."):
        schema = schema.get("items", schema)
        if schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        schema = schema.get("properties", {}).get(name)
        if schema is None:
            return False
    return True


def test_the_translation_from_strimzi_names_only_existing_fields() -> None:
    rows = [row.split(" | ") for row in TRANSLATION.splitlines() if row.startswith("| ")]
    named = {path for row in rows for path in re.findall(r"`(spec\.[\w.\[\]]+)`", row[-1])}
    # A field below an entry that the same cell names is a field of Kubernetes.
    ours = named - {"spec.loadBalancerClass"}
    assert len(ours) > 25
    assert {path for path in ours if not any(has_field(kind, path) for kind in KINDS.values())} == set()
