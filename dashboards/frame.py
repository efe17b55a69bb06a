"""The parts that all dashboards share: the data source, the choices at the top, and the links to the others."""

from collections.abc import Sequence
from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.panels import SOURCE, Panel

TAG: Final = "barnabas"
EVERYTHING: Final = ".*"
"""The pattern of "all", which also matches series without the label: without Kubernetes there is no namespace."""
Variable = tuple[str, str]
"""A label, and the series from which its values are offered."""
Section = tuple[str, Sequence[Panel]]
"""A row's title and its panels."""


def clusters(series: str) -> tuple[Variable, Variable]:
    """Return the choices of namespaces and Clusters, among those in this series."""
    return ("namespace", series), ("cluster", f'{series}{{namespace=~"$namespace"}}')


def dashboard(name: str, title: str, about: str, variables: Sequence[Variable], *sections: Section) -> model.Dashboard:
    """Return a dashboard. `name` is that of its file and, after `barnabas-`, the last part of its address."""
    frame = build.Dashboard(f"Barnabas / {title}").uid(f"barnabas-{name}").description(about).tags([TAG]).editable()
    frame = frame.time("now-1h", "now").refresh("30s").timezone("browser")
    frame = frame.tooltip(model.DashboardCursorSync.CROSSHAIR).link(_to_the_others())
    frame = frame.with_variable(build.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    for label, series in variables:
        frame = frame.with_variable(_variable(label, series))
    for section, panels in sections:
        frame = frame.with_row(build.Row(section))
        for panel in panels:
            frame = frame.with_panel(panel)
    made = frame.build()
    for number, placed in enumerate(made.panels or (), start=1):
        placed.id_val = number
    return made


def _variable(label: str, series: str) -> build.QueryVariable:
    name, values = label.rpartition("=")[::2] if "=" in label else (label, label)
    chosen = (
        build.QueryVariable(name).label(name.capitalize()).datasource(SOURCE).query(f"label_values({series}, {values})")
    )
    chosen = chosen.refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(model.VariableSort.ALPHABETICAL_ASC)
    everything = model.VariableOption(selected=True, text="All", value="$__all")
    return chosen.include_all(True).all_value(EVERYTHING).multi(True).current(everything)


def _to_the_others() -> build.DashboardLink:
    link = build.DashboardLink("Barnabas").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.as_dropdown(True).include_vars(True).keep_time(True)
