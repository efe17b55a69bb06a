"""The files in crds/ are generated from the types, and the chart has the same files."""

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
def test_each_crd_file_is_up_to_date_with_the_types(made: dict[str, Any]) -> None:
    file = CRDS / f"{made['metadata']['name']}.yaml"
    assert YAML(typ="safe").load(file) == made, "run make crds to write the file"


def test_the_chart_has_the_same_crd_files() -> None:
    people, chart = ({file.name: file.read_text() for file in folder.iterdir()} for folder in (CRDS, OF_THE_CHART))
    assert chart == people, "run make crds, and remove the files of deleted kinds"
