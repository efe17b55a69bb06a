"""The files in crds/ are what the types say."""

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from barnabas_operator.resources.cluster import Cluster
from barnabas_operator.resources.crd import crd_of
from barnabas_operator.resources.topic import Topic

CRDS = Path(__file__).resolve().parents[3] / "crds"


@pytest.mark.parametrize("kind", [Cluster, Topic])
def test_the_file_that_people_apply_is_the_one_that_the_types_make(kind: type[Cluster] | type[Topic]) -> None:
    made = crd_of(kind)
    file = CRDS / f"{made['metadata']['name']}.yaml"
    assert YAML(typ="safe").load(file) == made, f"python -m barnabas_operator.resources.crd {CRDS} writes it"
