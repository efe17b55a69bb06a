"""The queries of the dashboards, read from their JSON as Grafana does."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

DASHBOARDS: Final = sorted(
    (Path(__file__).parents[2] / "helm" / "barnabas" / "monitoring" / "dashboards").glob("*.json")
)
RATE_INTERVAL: Final = "10s"
"""The value of $__rate_interval: several scrapes."""
EVERYTHING: Final = "$__all"
VALUES: Final = re.compile(r"label_values\((?P<series>.*), (?P<label>\w+)\)")


class Asked(NamedTuple):
    """One query of a panel; `labels` are those in its legend or in the table's columns."""

    panel: str
    expr: str
    is_instant: bool
    labels: frozenset[str]


class Variable(NamedTuple):
    """A choice at the top of a dashboard."""

    name: str
    label: str
    series: str
    everything: str


def read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def variables(dashboard: Mapping[str, Any]) -> list[Variable]:
    """Return the choices, without the data source."""
    found = []
    for each in dashboard["templating"]["list"]:
        if each["type"] == "query":
            values = VALUES.fullmatch(each["query"])
            assert values is not None, each["query"]
            found.append(Variable(each["name"], values["label"], values["series"], each["allValue"]))
    return found


def asked(dashboard: Mapping[str, Any], chosen: Mapping[str, str]) -> Iterator[Asked]:
    """Yield every query, with the chosen values in it."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"{{(\w+)}}", target.get("legendFormat", "")))
            for each in panel.get("transformations", ()):
                named |= {name for name in each["options"].get("renameByName", {}) if not name.startswith("Value")}
            expr = filled(target["expr"], chosen)
            yield Asked(panel["title"], expr, bool(target.get("instant")), frozenset(named))


def filled(expr: str, chosen: Mapping[str, str]) -> str:
    """Put the values in, the longest variable first, because one name may be the beginning of another."""
    expr = expr.replace("$__rate_interval", RATE_INTERVAL)
    for name in sorted(chosen, key=len, reverse=True):
        expr = expr.replace(f"${name}", chosen[name])
    assert "$" not in expr, f"an unknown variable in {expr}"
    return expr


def metrics_of(expr: str) -> set[str]:
    """Return the names of metrics in PromQL, without those of recording rules."""
    names = set(re.findall(r"[a-z_:][a-z0-9_:]*", re.sub(r'"[^"]*"|\b(?:by|on)\s*\([^)]*\)', "", expr)))
    return {name for name in names if re.match("kafka_|barnabas_|process_|up$", name)}
