"""The kinds of panel in the dashboards, each with one look for all of them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import bargauge, common, stat, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import common as looks
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.dashboard import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
WHOLE_WIDTH: Final = 24
GREEN, YELLOW, RED = "green", "yellow", "red"

Panel = Builder[model.Panel]
Link = tuple[str, str]
"""Text and URL."""


class Query(NamedTuple):
    """A query in PromQL, and the name of its series: `{{label}}` stands for a label's value."""

    expr: str
    legend: str = ""


class Column(NamedTuple):
    """A column of values: its query is about now, by the labels that are the table's first columns."""

    title: str
    expr: str
    unit: str = "short"
    steps: Sequence[tuple[float, str]] = ()
    """A colour, and the value from which it is used."""
    words: Mapping[int, Link] | None = None
    """The word in place of a value, and its colour."""


def graph(title: str, about: str, unit: str, *queries: Query, span: int = 8, stacked: bool = False) -> Panel:
    """Return a panel of lines over time."""
    panel = timeseries.Panel().title(title).description(about).datasource(SOURCE).unit(unit).span(span).height(8)
    panel = panel.fill_opacity(15 if stacked else 5).line_width(1).show_points(looks.VisibilityMode.NEVER).min(0)
    legend = common.VizLegendOptions().display_mode(looks.LegendDisplayMode.TABLE).calcs(["lastNotNull", "max"])
    panel = panel.legend(legend.placement(looks.LegendPlacement.BOTTOM).show_legend(True))
    panel = panel.tooltip(
        common.VizTooltipOptions().mode(looks.TooltipDisplayMode.MULTI).sort(looks.SortOrder.DESCENDING)
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(looks.StackingMode.NORMAL))
    for number, query in enumerate(queries):
        panel = panel.with_target(_target(query.expr, number).legend_format(query.legend).range())
    return panel


def number(title: str, about: str, expr: str, unit: str = "short", *steps: tuple[float, str], span: int = 3) -> Panel:
    """Return a panel of one present value, coloured by the steps that it has reached."""
    panel = stat.Panel().title(title).description(about).datasource(SOURCE).unit(unit).span(span).height(4)
    panel = panel.graph_mode(looks.BigValueGraphMode.AREA).color_mode(looks.BigValueColorMode.VALUE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.thresholds(_steps(steps)).with_target(_target(expr, 0).range())


def bars(
    title: str, about: str, unit: str, query: Query, *steps: tuple[float, str], top: float, span: int = 8
) -> Panel:
    """Return a panel with a bar for each series, from 0 to `top`."""
    panel = bargauge.Panel().title(title).description(about).datasource(SOURCE).unit(unit).span(span).height(8)
    panel = panel.orientation(looks.VizOrientation.HORIZONTAL).display_mode(looks.BarGaugeDisplayMode.BASIC)
    panel = panel.min(0).max(top).thresholds(_steps(steps))
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    return panel.with_target(_target(query.expr, 0).legend_format(query.legend).instant())


def rows(
    title: str,
    about: str,
    keys: Mapping[str, str],
    columns: Sequence[Column],
    *,
    sort_by: str,
    links: Mapping[str, Link] | None = None,
    descending: bool = True,
    height: int = 10,
) -> Panel:
    """Return a table with a row for each set of labels: `keys` are these labels and the names of their columns."""
    panel = table.Panel().title(title).description(about).datasource(SOURCE).span(WHOLE_WIDTH).height(height)
    panel = panel.filterable(True).sort_by([common.TableSortByFieldState().display_name(sort_by).desc(descending)])
    names = dict(keys)
    for number_of, column in enumerate(columns):
        target = _target(column.expr, number_of).instant().format(PromQueryFormat.TABLE)
        panel = panel.with_target(target).override_by_name(column.title, _look(column))
        names[f"Value #{_letter(number_of)}" if len(columns) > 1 else "Value"] = column.title
    for label, (text, url) in (links or {}).items():
        panel = panel.override_by_name(keys[label], [_value("links", [{"title": text, "url": url}])])
    order = {name: place for place, name in enumerate(names)}
    shape = {"excludeByName": {"Time": True}, "renameByName": names, "indexByName": order}
    return panel.with_transformation(_transformation("merge", {})).with_transformation(
        _transformation("organize", shape)
    )


def _look(column: Column) -> list[model.DynamicConfigValue]:
    found = [_value("unit", column.unit)]
    if column.steps:
        found.append(_value("thresholds", _steps(column.steps).build()))
        found.append(_value("custom.cellOptions", {"type": "color-text"}))
    if column.words is not None:
        options = {str(value): {"text": text, "color": color} for value, (text, color) in column.words.items()}
        found.append(_value("mappings", [{"type": "value", "options": options}]))
        found.append(_value("custom.cellOptions", {"type": "color-text"}))
    return found


def _steps(steps: Sequence[tuple[float, str]]) -> build.ThresholdsConfig:
    """Return the colours of these steps; below the first it is green."""
    reached = [model.Threshold(None, GREEN), *(model.Threshold(value, color) for value, color in steps)]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(reached)


def _target(expr: str, number_of: int) -> Dataquery:
    return Dataquery().expr(expr).datasource(SOURCE).ref_id(_letter(number_of))


def _letter(number_of: int) -> str:
    return chr(ord("A") + number_of)


def _value(name: str, value: object) -> model.DynamicConfigValue:
    return model.DynamicConfigValue(name, value)


def _transformation(name: str, options: object) -> model.DataTransformerConfig:
    return model.DataTransformerConfig(id_val=name, options=options)
