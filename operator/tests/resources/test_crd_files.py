"""The CRDs of the chart are generated from the types, except that of the brokers' metadata."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from barnabas_operator.resources.crd import definitions

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "helm" / "barnabas" / "crd-files"


MADE = definitions()
WRITTEN_BY_HAND = {"statedocuments.internal.barnabas.dev"}


@pytest.mark.parametrize("made", MADE, ids=[each["metadata"]["name"] for each in MADE])
def test_each_crd_file_is_up_to_date_with_the_types(made: dict[str, Any]) -> None:
    file = CRDS / f"{made['metadata']['name']}.yaml"
    assert YAML(typ="safe").load(file) == made, "run make crds to write the file"


def test_the_chart_has_no_crd_file_of_a_deleted_kind() -> None:
    assert {file.stem for file in CRDS.iterdir()} == {each["metadata"]["name"] for each in MADE} | WRITTEN_BY_HAND
