"""The files of the dashboards are what the code makes, and whole."""

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
"""What Grafana knows by itself."""


def test_the_files_are_what_the_code_makes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "dashboards", str(tmp_path)], cwd=ROOT, check=True, timeout=60)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text(encoding="utf-8") for file in DASHBOARDS}
    assert made == kept, "`make dashboards` writes them"


def test_each_has_an_address_of_its_own() -> None:
    found = [read(file)["uid"] for file in DASHBOARDS]
    assert found
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_panel_says_what_it_shows_and_has_a_place_of_its_own(file: Path) -> None:
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
def test_no_variable_is_used_that_is_not_offered(file: Path) -> None:
    dashboard = read(file)
    offered = {each.name for each in variables(dashboard)} | GIVEN
    used = set(re.findall(r"\$\{?(\w+)", str(dashboard["panels"])))
    assert used <= offered


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_every_link_leads_to_a_dashboard(file: Path) -> None:
    addresses = {read(each)["uid"] for each in DASHBOARDS}
    assert set(re.findall(r"/d/([\w-]+)\?", str(read(file)))) <= addresses


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_link_keeps_the_data_source_and_the_value_whatever_is_in_it(file: Path) -> None:
    for link in re.findall(r"/d/[^']*", str(read(file)["panels"])):
        assert link.partition("?")[2].startswith("${datasource:queryparam}&"), link
        assert re.findall(r"\$\{__value[^}]*\}", link) == ["${__value.raw:percentencode}"], link
