"""The files in crds/ are what the types say, and the chart has the same."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from barnabas_operator.resources.crd import definitions

ROOT = Path(__file__).resolve().parents[3]
CRDS = ROOT / "crds"
OF_THE_CHART = ROOT / "helm" / "barnabas" / "crd-files"


MADE = definitions()


@pytest.mark.parametrize("made", MADE, ids=[each["metadata"]["name"] for each in MADE])
def test_the_file_that_people_apply_is_the_one_that_the_types_make(made: dict[str, Any]) -> None:
    file = CRDS / f"{made['metadata']['name']}.yaml"
    assert YAML(typ="safe").load(file) == made, "make crds writes it"


def test_the_chart_has_the_very_files() -> None:
    people, chart = ({file.name: file.read_text() for file in folder.iterdir()} for folder in (CRDS, OF_THE_CHART))
    assert chart == people, "make crds (and remove what is no more)"
