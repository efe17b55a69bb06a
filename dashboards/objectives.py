"""The dashboard of ConsumerGroups: whether they keep their objectives, and what the operator does for them."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import dashboard
from dashboards.lag import STATUS
from dashboards.panels import GREEN, RED, YELLOW, Column, Panel, Query, graph, number, rows

METRIC: Final = "barnabas_consumer_group_"
OF_CLUSTER: Final = 'resource_namespace=~"$namespace",cluster=~"$cluster"'
CHOSEN: Final = f'{OF_CLUSTER},consumergroup=~"$group"'
GROUP: Final = "resource_namespace, cluster, consumergroup, name"
PARTITIONS: Final = (
    "/d/barnabas-consumer-lag?${datasource:queryparam}&var-group=${__value.raw:percentencode}&${__url_time_range}"
)
LEGEND: Final = "{{resource_namespace}}/{{name}}"
YES: Final = {0: ("no", RED), 1: ("yes", GREEN)}
WAITS: Final = {0: ("no", GREEN), 1: ("yes", YELLOW)}


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "objectives",
        "Consumer groups and objectives",
        "Which ConsumerGroups keep their lag objective, which resets wait, and how many replicas follow the lag?",
        (
            ("namespace=resource_namespace", f"{METRIC}evaluation"),
            ("cluster", f'{METRIC}evaluation{{resource_namespace=~"$namespace"}}'),
            ("group=consumergroup", f"{METRIC}evaluation{{{OF_CLUSTER}}}"),
        ),
        ("State", _state()),
        ("Groups", [_groups()]),
        ("Over time", _over_time()),
    )


def _each(metric: str) -> str:
    """Return a query that counts once what the operators that stand by export, too."""
    return f"max by ({GROUP}) ({METRIC}{metric}{{{CHOSEN}}})"


def _count(metric: str, which: str) -> str:
    return f"count({_each(metric)} {which}) or vector(0)"


def _state() -> list[Panel]:
    kept = f"avg({_each('within_objective')}) * 100"
    stuck = _count("evaluation", ">= 4")
    return [
        number("Groups", "ConsumerGroups that are chosen above.", f"count({_each('evaluation')})", span=4),
        number("Objectives kept", "Share of the declared objectives.", kept, "percent", span=4),
        number(
            "Objectives missed",
            "Objectives that have been missed for longer than spec.lagObjective.for.",
            _count("within_objective", "== 0"),
            "short",
            (1, RED),
            span=4,
        ),
        number(
            "Stopped, stalled or rewound",
            "Groups that make no progress, or went back, by Burrow's rules.",
            stuck,
            "short",
            (1, RED),
            span=4,
        ),
        number(
            "Resets that wait",
            "Resets that are declared and not carried out: kubectl describe bg says why.",
            _count("reset_pending", "== 1"),
            "short",
            (1, YELLOW),
            span=4,
        ),
        number(
            "Not scaled",
            "Groups whose replicas should follow the lag and cannot: the condition ScalingActive says why.",
            _count("scaling_active", "== 0"),
            "short",
            (1, YELLOW),
            span=4,
        ),
    ]


def _groups() -> Panel:
    keys = {"resource_namespace": "Namespace", "cluster": "Cluster", "name": "Name", "consumergroup": "Group"}
    columns = [
        Column("Within objective", _each("within_objective"), words=YES),
        Column("Evaluation", _each("evaluation"), words=STATUS),
        Column("Lag", _each("lag")),
        Column("Allowed", _each("objective_records")),
        Column("Seconds", _each("lag_seconds"), "s"),
        Column("Allowed seconds", _each("objective_seconds"), "s"),
        Column("Members", _each("members")),
        Column("Replicas", _each("replicas")),
        Column("Reset waits", _each("reset_pending"), words=WAITS),
    ]
    return rows(
        "ConsumerGroups, those that miss their objective first",
        "kubectl describe bg says what each waits for; docs/how-to/consumer-groups.md explains the reasons.",
        keys,
        columns,
        sort_by="Within objective",
        descending=False,
        links={"consumergroup": ("Its partitions", PARTITIONS)},
    )


def _share(metric: str, allowed: str) -> str:
    """Return the lag in percent of the limit. If the limit is 0, each record or second counts as 100 %."""
    return f"{_each(metric)} / clamp_min({_each(allowed)}, 1) * 100"


def _over_time() -> list[Panel]:
    share, share_s = _share("lag", "objective_records"), _share("lag_seconds", "objective_seconds")
    return [
        graph(
            "Lag as share of what is allowed",
            "At 100 % the objective is missed. Numbers are written once a minute.",
            "percent",
            Query(share, f"{LEGEND} records"),
            Query(share_s, f"{LEGEND} seconds"),
            span=12,
        ),
        graph(
            "Objectives missed",
            "1 as long as a group misses its objective.",
            "short",
            Query(f"1 - {_each('within_objective')}", LEGEND),
            span=12,
        ),
        graph("Members", "Consumers in each group.", "short", Query(_each("members"), LEGEND), span=12),
        graph(
            "Replicas",
            "Replicas of the consumers' Deployment or StatefulSet, as the operator set them last.",
            "short",
            Query(_each("replicas"), LEGEND),
            span=12,
        ),
    ]
