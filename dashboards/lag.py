"""The dashboard of consumer lag: which groups are behind, how far, whether they progress, and what they may lose."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import clusters, dashboard
from dashboards.panels import GREEN, RED, YELLOW, Column, Panel, Query, graph, number, rows

OF_CLUSTER: Final = 'namespace=~"$namespace",cluster=~"$cluster"'
OF_GROUP: Final = f'{OF_CLUSTER},consumergroup=~"$group"'
CHOSEN: Final = f'{OF_GROUP},topic=~"$topic"'
GROUP: Final = "namespace, cluster, consumergroup"
TOPIC: Final = f"{GROUP}, topic"
PARTITION: Final = f"{TOPIC}, partition"
RATE: Final = "[$__rate_interval]"
METRIC: Final = "kafka_consumergroup_"
STATUS: Final = {1: ("OK", GREEN), 2: ("WARN", YELLOW), 4: ("STOP", RED), 5: ("STALL", RED), 6: ("REWIND", YELLOW)}
"""Burrow's words and numbers."""
BEHIND: Final = ((60, YELLOW), (600, RED))
"""Seconds."""
RETAINED: Final = ((50, YELLOW), (80, RED))


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "consumer-lag",
        "Consumer lag",
        "Which groups are behind, by how many records and seconds, do they make progress, and what may they lose?",
        (
            *clusters("kafka_consumergroup_lag"),
            ("group=consumergroup", f"kafka_consumergroup_lag{{{OF_CLUSTER}}}"),
            ("topic", f"kafka_consumergroup_lag{{{OF_GROUP}}}"),
        ),
        ("State", _state()),
        ("Groups", [_groups()]),
        ("Over time", _over_time()),
        ("Topics", [_topics()]),
        ("Partitions", [_partitions()]),
    )


def _one_each(metric: str) -> str:
    """Return a query that counts each partition once: coordinator and lag exporter both export its lag."""
    return f"max by ({PARTITION}) ({METRIC}{metric}{{{CHOSEN}}})"


def _by(labels: str, how: str, metric: str) -> str:
    return f"{how} by ({labels}) ({_one_each(metric)})"


def _of_topic(how: str, labels: str, metric: str) -> str:
    """Return a query of values for a whole topic of a group."""
    return f"{how} by ({labels}) ({METRIC}{metric}{{{CHOSEN}}})"


def _worst(labels: str) -> str:
    """Return the worst status of a group: REWIND counts as better than STOP and STALL, though its number is greater."""
    found = f"{METRIC}status{{{CHOSEN}}}"
    return f"max by ({labels}) ({found} < 6) >= 4 or max by ({labels}) ({found})"


def _state() -> list[Panel]:
    stuck = f"{_of_topic('max', GROUP, 'status')} >= 4"
    return [
        number("Groups", "Groups that are chosen above.", f"count({_by(GROUP, 'count', 'lag')})", span=4),
        number("Lag", "Records that all these groups have still to read.", f"sum({_one_each('lag')})", span=4),
        number(
            "Furthest behind",
            "Age of the oldest unread record of the group that is furthest behind.",
            f"max({_one_each('lag_seconds')})",
            "s",
            *BEHIND,
            span=4,
        ),
        number(
            "Stopped, stalled or rewound",
            "Groups with a partition whose committed offset does not move.",
            f"count({stuck}) or vector(0)",
            "short",
            (1, RED),
            span=4,
        ),
        number(
            "Unread share of what is kept",
            "At 100 % the next record that retention deletes is one that a group has not read.",
            f"max({_one_each('retention_percent')})",
            "percent",
            *RETAINED,
            span=4,
        ),
        number(
            "Members", "Members of all these groups.", f"sum(max by ({GROUP}) ({METRIC}members{{{OF_GROUP}}}))", span=4
        ),
    ]


def _groups() -> Panel:
    keys = {"namespace": "Namespace", "cluster": "Cluster", "consumergroup": "Group"}
    columns = [
        Column("Status", _worst(GROUP), words=STATUS),
        Column("Members", f"max by ({GROUP}) ({METRIC}members{{{OF_GROUP}}})"),
        Column("Lag", _by(GROUP, "sum", "lag")),
        Column("Behind", _by(GROUP, "max", "lag_seconds"), "s", BEHIND),
        Column("Lag grows by", f"sum by ({GROUP}) ({_of_topic('max', TOPIC, 'lag_velocity')})", "cps"),
        Column("Caught up in", _of_topic("max", GROUP, "time_to_catch_up_seconds"), "s"),
        Column("Unread share", _by(GROUP, "max", "retention_percent"), "percent", RETAINED),
        Column("Offsets expire in", f"min by ({GROUP}) ({METRIC}offsets_expire_seconds{{{OF_GROUP}}})", "s"),
    ]
    link = (
        "This group alone",
        "/d/barnabas-consumer-lag?${datasource:queryparam}&var-group=${__value.raw:percentencode}&${__url_time_range}",
    )
    return rows(
        "Groups",
        "Behind: how long ago the oldest unread record was written. Infinite: the lag does not get less. "
        "Offsets expire in: the longest possible time; only groups without members lose their offsets.",
        keys,
        columns,
        sort_by="Lag",
        links={"consumergroup": link},
    )


def _over_time() -> list[Panel]:
    name = "{{cluster}}/{{consumergroup}} {{topic}}"
    read = f"sum by ({TOPIC}) (clamp_min(max by ({PARTITION}) (deriv({METRIC}current_offset{{{CHOSEN}}}{RATE})), 0))"
    written = (
        "sum by (namespace, cluster, topic) (clamp_min(max by (namespace, cluster, topic, partition) "
        f'(deriv(kafka_topic_partition_current_offset{{{OF_CLUSTER},topic=~"$topic"}}{RATE})), 0))'
    )
    return [
        graph(
            "Lag",
            "Records that are still to be read: the ten largest lags.",
            "short",
            _ten(_by(TOPIC, "sum", "lag"), name),
        ),
        graph(
            "Behind",
            "Age of the oldest unread record: the ten largest.",
            "s",
            _ten(_by(TOPIC, "max", "lag_seconds"), name),
        ),
        graph(
            "Unread share of what is kept",
            "At 100 % records are deleted unread. The ten largest shares.",
            "percent",
            _ten(_by(TOPIC, "max", "retention_percent"), name),
        ),
        graph("Read", "Records a second by committed offsets: the ten fastest.", "short", _ten(read, name)),
        graph(
            "Written", "Records a second by topic: the ten fastest.", "short", _ten(written, "{{cluster}}/{{topic}}")
        ),
        graph(
            "Members",
            "Members of each group.",
            "short",
            _ten(f"max by ({GROUP}) ({METRIC}members{{{OF_GROUP}}})", "{{cluster}}/{{consumergroup}}"),
        ),
        _by_protocol(),
    ]


def _by_protocol() -> Panel:
    return graph(
        "Groups by protocol and state",
        "Classic groups, and those of the consumer protocol (KIP-848), which are Assigning or Reconciling while "
        "partitions move.",
        "short",
        Query(
            f"count by (type, state) (max by ({GROUP}, type, state) ({METRIC}state{{{OF_GROUP}}}))",
            "{{type}} {{state}}",
        ),
        stacked=True,
    )


def _ten(expr: str, legend: str) -> Query:
    return Query(f"topk(10, {expr})", legend)


def _topics() -> Panel:
    keys = {"namespace": "Namespace", "cluster": "Cluster", "consumergroup": "Group", "topic": "Topic"}
    columns = [
        Column("Status", _worst(TOPIC), words=STATUS),
        Column("Partitions", _by(TOPIC, "count", "lag")),
        Column("Lag", _by(TOPIC, "sum", "lag")),
        Column("Largest of a partition", _by(TOPIC, "max", "lag")),
        Column("Behind", _by(TOPIC, "max", "lag_seconds"), "s", BEHIND),
        Column("Lag grows by", _of_topic("max", TOPIC, "lag_velocity"), "cps"),
        Column("Caught up in", _of_topic("max", TOPIC, "time_to_catch_up_seconds"), "s"),
        Column("Unread share", _by(TOPIC, "max", "retention_percent"), "percent", RETAINED),
        Column("Lead", f"min by ({TOPIC}) (kafka_consumer_fetch_manager_records_lead_min{{{CHOSEN}}})"),
    ]
    link = (
        "This topic alone",
        (
            "/d/barnabas-consumer-lag?${datasource:queryparam}&${group:queryparam}"
            "&var-topic=${__value.raw:percentencode}&${__url_time_range}"
        ),
    )
    return rows(
        "Topics of the groups",
        "Lead: offsets from the oldest record to the next read. Below 0 it counts records deleted unread.",
        keys,
        columns,
        sort_by="Lag",
        links={"topic": link},
    )


def _partitions() -> Panel:
    keys = {
        "namespace": "Namespace",
        "cluster": "Cluster",
        "consumergroup": "Group",
        "topic": "Topic",
        "partition": "Partition",
    }
    columns = [
        Column("Committed", _one_each("current_offset"), "none"),
        Column("Lag", _one_each("lag")),
        Column("Behind", _one_each("lag_seconds"), "s", BEHIND),
        Column("Unread share", _one_each("retention_percent"), "percent", RETAINED),
    ]
    return rows(
        "Partitions of the groups",
        "If one partition is far behind the others, one of its keys has too many records, or its consumer is stuck.",
        keys,
        columns,
        sort_by="Lag",
        height=14,
    )
