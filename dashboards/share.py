"""The dashboard of share groups: their backlog, what is in flight, what comes again, and what is put aside."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import clusters, dashboard
from dashboards.panels import RED, YELLOW, Column, Panel, Query, graph, number, rows

OF_CLUSTER: Final = 'namespace=~"$namespace",cluster=~"$cluster"'
CHOSEN: Final = f'{OF_CLUSTER},group=~"$group"'
GROUP: Final = "namespace, cluster, group"
PARTITION: Final = f"{GROUP}, topic, partition"
RATE: Final = "[$__rate_interval]"
OF_GROUPS: Final = "kafka_server_sharegroupmetrics_"
OF_PARTITIONS: Final = "kafka_server_sharepartitionmetrics_"
ACKNOWLEDGED: Final = f"{OF_GROUPS}recordacknowledgements_total"
DELIVERED: Final = "barnabas_share_deliveries_total"
AGAIN: Final = ',delivery="again"'
BURIED: Final = f"{OF_GROUPS}deadletterqueue_recordcount_total"
WITHOUT_LETTER: Final = "barnabas_share_records_without_dead_letter_total"
OLDEST: Final = "barnabas_share_oldest_unacknowledged_seconds"
IN_FLIGHT: Final = f"{OF_PARTITIONS}inflightmessagecount"
AGES: Final = ((60, YELLOW), (600, RED))
"""Seconds."""
WINDOW: Final = ((1500, YELLOW), (2000, RED))
"""Records in flight; share.partition.max.record.locks is 2,000 unless it is set."""


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "share-groups",
        "Share groups",
        "How large is the backlog of a work queue, what do its workers hold, and what cannot be processed?",
        (*clusters(ACKNOWLEDGED), ("group", f"{ACKNOWLEDGED}{{{OF_CLUSTER}}}")),
        ("State", _state()),
        ("Groups", [_groups()]),
        ("Work", _work()),
        ("Records that come again or are put aside", _trouble()),
        ("Partitions", [_partitions()]),
    )


def _backlog(labels: str) -> str:
    """Return the lag by coordinator or lag exporter, with the label `group` of the brokers' series."""
    one_each = f'max by ({PARTITION}) (label_join({_share_lag()}, "group", "", "consumergroup"))'
    return f"sum by ({labels}) ({one_each})"


def _share_lag() -> str:
    lag = f'kafka_consumergroup_lag{{{OF_CLUSTER},consumergroup=~"$group"}}'
    return f'{lag} and on (namespace, cluster, consumergroup) kafka_consumergroup_state{{type="share"}}'


def _sum(labels: str, metric: str, more: str = "") -> str:
    return f"sum by ({labels}) ({metric}{{{CHOSEN}{more}}})"


def _rate(labels: str, metric: str, more: str = "") -> str:
    return f"sum by ({labels}) (rate({metric}{{{CHOSEN}{more}}}{RATE}))"


def _again(labels: str) -> str:
    return f"{_rate(labels, DELIVERED, AGAIN)} / ({_rate(labels, DELIVERED)} > 0)"


def _state() -> list[Panel]:
    return [
        number("Groups", "Share groups that are chosen above.", f"count({_sum(GROUP, ACKNOWLEDGED)})", span=4),
        number("Backlog", "Records that are not finished, of all these groups.", f"sum({_backlog(GROUP)})", span=4),
        number("In flight", "Records in the windows of all partitions.", f"sum({IN_FLIGHT}{{{CHOSEN}}})", span=4),
        number(
            "Oldest record",
            "The longest time since a record that is not final was first delivered.",
            f"max({OLDEST}{{{CHOSEN}}})",
            "s",
            *AGES,
            span=4,
        ),
        number("Dead letters", "Dead letters of the last hour.", f"sum(increase({BURIED}{{{CHOSEN}}}[1h]))", span=4),
        number(
            "Without a dead letter",
            "Records of the last hour that were put aside without one, because the setting of the topic is broken.",
            f"sum(increase({WITHOUT_LETTER}{{{CHOSEN}}}[1h]))",
            "short",
            (1, RED),
            span=4,
        ),
    ]


def _groups() -> Panel:
    keys = {"namespace": "Namespace", "cluster": "Cluster", "group": "Group"}
    columns = [
        Column("Backlog", _backlog(GROUP)),
        Column("In flight", _sum(GROUP, IN_FLIGHT)),
        Column("Locked", _sum(GROUP, "barnabas_share_acquired_records")),
        Column("Oldest", f"max by ({GROUP}) ({OLDEST}{{{CHOSEN}}})", "s", AGES),
        Column("Accepted", _rate(GROUP, ACKNOWLEDGED, ',ack_type="accept"'), "cps"),
        Column("Released", _rate(GROUP, ACKNOWLEDGED, ',ack_type="release"'), "cps"),
        Column("Rejected", _rate(GROUP, ACKNOWLEDGED, ',ack_type="reject"'), "cps"),
        Column("Locks run out", _rate(GROUP, f"{OF_PARTITIONS}acquisitionlocktimeout_total"), "cps"),
        Column("Dead letters", _sum(GROUP, BURIED)),
    ]
    link = (
        "This group alone",
        "/d/barnabas-share-groups?${datasource:queryparam}&var-group=${__value.raw:percentencode}&${__url_time_range}",
    )
    about = "Backlog: records that the group has not finished. Oldest: since the first delivery of the oldest of them."
    return rows("Groups", about, keys, columns, sort_by="Backlog", links={"group": link})


def _ten(expr: str, legend: str = "{{cluster}}/{{group}}") -> Query:
    return Query(f"topk(10, {expr})", legend)


def _work() -> list[Panel]:
    kinds = _rate(f"{GROUP}, ack_type", ACKNOWLEDGED)
    return [
        graph("Backlog", "Records that are not finished: the ten largest.", "short", _ten(_backlog(GROUP))),
        graph(
            "In flight",
            "Records from the first one that is not final to the last one delivered: the ten largest.",
            "short",
            _ten(_sum(GROUP, IN_FLIGHT)),
        ),
        graph(
            "Oldest record",
            "Time since a record that is not final was first delivered: the ten longest.",
            "s",
            _ten(f"max by ({GROUP}) ({OLDEST}{{{CHOSEN}}})"),
        ),
        graph(
            "Acquired", "Records a second that members get: the ten fastest.", "short", _ten(_rate(GROUP, DELIVERED))
        ),
        graph(
            "Acknowledged",
            "Records a second by type: accept, release, reject, renew, and gap for offsets without a record.",
            "short",
            _ten(kinds, "{{cluster}}/{{group}} {{ack_type}}"),
        ),
        graph(
            "Locked",
            "Records that members hold now: the ten largest.",
            "short",
            _ten(_sum(GROUP, "barnabas_share_acquired_records")),
        ),
    ]


def _trouble() -> list[Panel]:
    return [
        graph(
            "Delivered again",
            "Share of the deliveries that are not the first of their record: the ten largest.",
            "percentunit",
            _ten(_again(GROUP)),
        ),
        graph(
            "Locks that run out",
            "Records a second whose member neither acknowledged them nor ended its session.",
            "short",
            _ten(_rate(GROUP, f"{OF_PARTITIONS}acquisitionlocktimeout_total")),
        ),
        graph(
            "Dead letters",
            "Dead letters a second, those that wait to be written, and tries that failed.",
            "short",
            _ten(_rate(GROUP, BURIED), "{{cluster}}/{{group}} written"),
            _ten(_sum(GROUP, "barnabas_share_records_waiting_for_dead_letters"), "{{cluster}}/{{group}} waiting"),
            _ten(
                _rate(GROUP, f"{OF_GROUPS}deadletterqueue_failedproducerequests_total"), "{{cluster}}/{{group}} failed"
            ),
        ),
    ]


def _partitions() -> Panel:
    keys = {
        "namespace": "Namespace",
        "cluster": "Cluster",
        "group": "Group",
        "topic": "Topic",
        "partition": "Partition",
    }
    columns = [
        Column("Backlog", _backlog(PARTITION)),
        Column("In flight", _sum(PARTITION, IN_FLIGHT), "short", WINDOW),
        Column("Locked", _sum(PARTITION, "barnabas_share_acquired_records")),
        Column("Oldest", f"max by ({PARTITION}) ({OLDEST}{{{CHOSEN}}})", "s", AGES),
        Column("Waits for a dead letter", _sum(PARTITION, "barnabas_share_records_waiting_for_dead_letters")),
    ]
    about = "If In flight stays at the limit and Oldest grows, one record holds the window of its partition."
    return rows("Partitions of the groups", about, keys, columns, sort_by="Oldest", height=14)
