"""`python -m monitoring.pictures FOLDER`: a picture of each dashboard, from a real cluster under load, for docs/.

Grafana is in no package registry. A small page draws the dashboards' JSON with ECharts (from the npm registry) in
headless Chromium (Debian's): it shows what each panel asks for, with its units and colours, not how Grafana looks.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from local_kubernetes.apiserver import define, prepare_api_server
from monitoring.panels_of import DASHBOARDS, filled, read, variables
from monitoring.prometheus_server import Prometheus
from monitoring.whole_stack import whole_stack

LIBRARY: Final = "echarts@6.1.0"
PAGE: Final = Path(__file__).parent / "picture" / "page.html"
LOAD_S: Final = 240.0
"""The time under load before the pictures are taken."""
WIDTH_PX: Final = 1500
CELL_PX: Final = 38
AROUND_PX: Final = 60
SECONDS_MAX: Final = 120.0


def main(target: Path) -> None:
    """Write the pictures, over those that exist."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        library = _library(folder)
        plane = prepare_api_server(folder / "api")
        try:
            plane.start_api()
            define(plane)
            with whole_stack(plane, folder) as stack:
                time.sleep(LOAD_S)
                for file in DASHBOARDS:
                    _take(stack.prometheus, file, library, target / f"{file.stem}.png")
        finally:
            plane.daemons.stop_all()


def _library(folder: Path) -> Path:
    subprocess.run(["npm", "pack", "--silent", LIBRARY], cwd=folder, check=True, timeout=SECONDS_MAX)
    with tarfile.open(next(folder.glob("echarts-*.tgz"))) as package:
        package.extractall(folder, filter="data")
    return folder / "package" / "dist" / "echarts.min.js"


def _take(prometheus: Prometheus, file: Path, library: Path, target: Path) -> None:
    dashboard = read(file)
    chosen = {each.name: each.everything for each in variables(dashboard)}
    for panel in dashboard["panels"]:
        panel["found"] = [_found(prometheus, target_of, chosen) for target_of in panel.get("targets", ())]
    data = json.dumps(dashboard).replace("Infinity", "1e999").replace("NaN", "null").replace("</", "<\\/")
    page = library.parent / f"{file.stem}.html"
    page.write_text(PAGE.read_text(encoding="utf-8").replace("LIBRARY", library.name).replace("DATA", data), "utf-8")
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")
    size = f"--window-size={WIDTH_PX},{rows * CELL_PX + AROUND_PX}"
    subprocess.run(
        ["chromium", *options, size, f"--screenshot={target}", page.as_uri()], check=True, timeout=SECONDS_MAX
    )


def _found(prometheus: Prometheus, target: Mapping[str, Any], chosen: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return labels, and times with values, of each series."""
    expr, now_s = filled(target["expr"], chosen), time.time()
    if target.get("instant"):
        series = prometheus.now(expr)
        return [{"labels": each.labels, "values": [(now_s, value) for value in each.values]} for each in series]
    start_s = now_s - LOAD_S
    series = prometheus.over_time(expr, start_s, now_s)
    return [{"labels": each.labels, "values": _timed(each.values, now_s)} for each in series]


def _timed(values: list[float], end_s: float) -> list[tuple[float, float]]:
    """Return one value a second, the last at the end."""
    return [(end_s - len(values) + number, value) for number, value in enumerate(values, start=1)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
