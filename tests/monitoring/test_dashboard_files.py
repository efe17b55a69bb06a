"""The files of the dashboards match the code, and are complete."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from monitoring.panels_of import DASHBOARDS, read, variables

ROOT: Final = Path(__file__).parents[2]
COLUMNS: Final = 24
GIVEN: Final = {"datasource", "__rate_interval", "__value", "__url_time_range"}
"""Variables that Grafana itself defines."""


def test_the_dashboard_files_are_those_that_the_code_generates(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "dashboards", str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text(encoding="utf-8") for file in DASHBOARDS}
    assert made == kept, "run `make dashboards`"


def test_each_dashboard_has_its_own_uid() -> None:
    found = [read(file)["uid"] for file in DASHBOARDS]
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_has_a_description_and_its_own_place(file: Path) -> None:
    panels: list[dict[str, Any]] = read(file)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {(x, y) for x in _span(place["x"], place["w"]) for y in _span(place["y"], place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["description"].endswith("."), panel["title"]


def _span(start: int, size: int) -> range:
    return range(start, start + size)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_use_only_existing_variables(file: Path) -> None:
    dashboard = read(file)
    offered = {each.name for each in variables(dashboard)} | GIVEN
    used = set(re.findall(r"\$\{?(\w+)", str(dashboard["panels"])))
    assert used <= offered


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_link_leads_to_an_existing_dashboard(file: Path) -> None:
    addresses = {read(each)["uid"] for each in DASHBOARDS}
    assert set(re.findall(r"/d/([\w-]+)\?", str(read(file)))) <= addresses


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_links_pass_on_the_data_source_and_the_encoded_value(file: Path) -> None:
    for link in re.findall(r"/d/[^']*", str(read(file)["panels"])):
        assert link.partition("?")[2].startswith("${datasource:queryparam}&"), link
        assert re.findall(r"\$\{__value[^}]*\}", link) == ["${__value.raw:percentencode}"], link
