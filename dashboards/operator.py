"""The dashboard of the operator: whether one acts, which resources are not ready, how its rounds go."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import dashboard
from dashboards.panels import GREEN, RED, YELLOW, Column, Panel, Query, graph, number, rows

CHOSEN: Final = 'resource_namespace=~"$namespace",cluster=~"$cluster"'
EACH: Final = "resource_namespace, cluster"
NAME: Final = "{{resource_namespace}}/{{cluster}}"
RATE: Final = "[$__rate_interval]"
ROUNDS: Final = "barnabas_reconciliations_"


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "operator",
        "Operator",
        "Does an operator act, which Clusters and Topics are not as declared, and how do its rounds go?",
        (
            ("namespace=resource_namespace", "barnabas_resources"),
            ("cluster", 'barnabas_resources{resource_namespace=~"$namespace"}'),
        ),
        ("State", _state()),
        ("Clusters and Topics", [_resources()]),
        ("Rounds", _rounds()),
        ("Its processes", _processes()),
    )


def _count(kind: str, which: str = "") -> str:
    """Return a query that counts once what the operators that stand by export, too."""
    named = f'max by ({EACH}, name) (barnabas_resource_state{{{CHOSEN},kind="{kind}"}})'
    return f"count({named}{which}) or vector(0)"


def _state() -> list[Panel]:
    errors = "barnabas_watch_errors_total"  # A kind's series begins with its first error.
    paused = f"sum(max by ({EACH}, kind) (barnabas_resources_paused{{{CHOSEN}}}))"
    return [
        number(
            "Operators that act",
            "Operators that act: one for each release. Others stand by.",
            "sum(barnabas_operator_is_leader)",
        ),
        number("Operators", "Operators that run.", "count(barnabas_operator_is_leader)"),
        number("Clusters", "Clusters that are chosen above.", _count("Cluster")),
        number("Clusters not ready", "The list below has the reasons.", _count("Cluster", " == 0"), "short", (1, RED)),
        number("Topics", "Topics that are chosen above.", _count("Topic")),
        number("Topics not ready", "The list below has the reasons.", _count("Topic", " == 0"), "short", (1, YELLOW)),
        number("Paused", "Resources with spec.pause: true.", paused),
        number(
            "Not taken in",
            "Objects that the operator could not read in the last hour: its log says why.",
            f"sum(({errors} unless {errors} offset 1h) or increase({errors}[1h])) or vector(0)",
            "short",
            (1, RED),
        ),
    ]


def _resources() -> Panel:
    keys = {
        "resource_namespace": "Namespace",
        "cluster": "Cluster",
        "kind": "Kind",
        "name": "Name",
        "reason": "Reason",
    }
    state = f"max by ({EACH}, kind, name, reason) (barnabas_resource_state{{{CHOSEN}}})"
    columns = [Column("Ready", state, words={0: ("no", RED), 1: ("yes", GREEN)})]
    return rows(
        "Clusters and Topics, those that are not ready first",
        "kubectl describe says what a resource waits for; docs/how-to/troubleshoot.md explains the reasons.",
        keys,
        columns,
        sort_by="Ready",
        descending=False,
    )


def _rounds() -> list[Panel]:
    took = f"sum by ({EACH}, le) (rate({ROUNDS}duration_seconds_bucket{{{CHOSEN}}}{RATE}))"
    most, half = (f"histogram_quantile({share}, {took})" for share in (0.99, 0.5))
    return [
        graph(
            "Rounds", "Rounds a second; each is over a Cluster and its Topics.", "short", Query(_rate("total"), NAME)
        ),
        graph(
            "Rounds that failed",
            "Failed rounds a second. They are tried again; the log says why.",
            "short",
            Query(_rate("failed_total"), NAME),
        ),
        graph(
            "How long rounds take",
            "Median and 99th percentile of the time of a round.",
            "s",
            Query(most, f"{NAME} 99 %"),
            Query(half, f"{NAME} 50 %"),
        ),
        graph(
            "Resources",
            "Resources that the operator watches.",
            "short",
            Query(f"max by ({EACH}, kind) (barnabas_resources{{{CHOSEN}}})", f"{NAME} {{{{kind}}}}"),
            span=24,
        ),
    ]


def _rate(name: str) -> str:
    return f"sum by ({EACH}) (rate({ROUNDS}{name}{{{CHOSEN}}}{RATE}))"


def _processes() -> list[Panel]:
    # Of all processes, only operators count.
    cpu, memory = (
        f"{each} and on (job, instance) barnabas_operator_is_leader"
        for each in (f"rate(process_cpu_seconds_total{RATE})", "process_resident_memory_bytes")
    )
    return [
        graph("CPU", "Cores that the process uses.", "short", Query(cpu, "{{namespace}} {{instance}}"), span=12),
        graph(
            "Memory", "Resident memory of the process.", "bytes", Query(memory, "{{namespace}} {{instance}}"), span=12
        ),
    ]
