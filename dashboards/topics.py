"""The dashboard of topics: which have the traffic and fill the disks, and where their partitions are."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.frame import clusters, dashboard
from dashboards.panels import GREEN, RED, YELLOW, Column, Panel, Query, graph, number, rows

OF_CLUSTER: Final = 'namespace=~"$namespace",cluster=~"$cluster"'
CHOSEN: Final = f'{OF_CLUSTER},topic=~"$topic"'
TOPIC: Final = "namespace, cluster, topic"
PARTITION: Final = f"{TOPIC}, partition"
RATE: Final = "[$__rate_interval]"
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
OF_PARTITION: Final = "kafka_topic_partition_"


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "topics",
        "Topics",
        "Which topics have the traffic and fill the disks, and where are their partitions?",
        (
            *clusters("kafka_topic_partition_current_offset"),
            ("topic", f"kafka_topic_partition_current_offset{{{OF_CLUSTER}}}"),
        ),
        ("State", _state()),
        ("Traffic", _traffic()),
        ("Topics", [_topics()]),
        ("Partitions", [_partitions()]),
    )


def _one_each(metric: str) -> str:
    """Return a query that counts each partition once: its leader exports it, and the lag exporter may, too."""
    return f"max by ({PARTITION}) ({OF_PARTITION}{metric}{{{CHOSEN}}})"


def _state() -> list[Panel]:
    full = f"{_one_each('in_sync_replica')} < {_one_each('replicas')}"
    away = f"{_one_each('leader_is_preferred')} == 0"
    size = f"sum(kafka_log_log_size{{{CHOSEN}}})"
    return [
        number(
            "Topics", "Topics that are chosen above.", f"count(count by ({TOPIC}) ({_one_each('replicas')}))", span=4
        ),
        number("Partitions", "Partitions of these topics.", f"count({_one_each('replicas')})", span=4),
        number("Replicas", "Replicas of these partitions.", f"sum({_one_each('replicas')})", span=4),
        number(
            "Under-replicated",
            "Partitions that lack a replica in sync.",
            f"count({full}) or vector(0)",
            "short",
            (1, YELLOW),
            span=4,
        ),
        number(
            "Not at their preferred leader",
            "Partitions that are not led by their first replica.",
            f"count({away}) or vector(0)",
            span=4,
        ),
        number("On disks", "Bytes of all replicas.", size, "bytes", span=4),
    ]


def _traffic() -> list[Panel]:
    return [
        _top("Records in", "Records a second that clients wrote", "short", _rate("messagesin")),
        _top("Bytes in", "Bytes a second that clients wrote", "Bps", _rate("bytesin")),
        _top("Bytes out", "Bytes a second that clients read", "Bps", _rate("bytesout")),
    ]


def _top(title: str, about: str, unit: str, expr: str) -> Panel:
    return graph(
        title, f"{about}: the ten topics that have most.", unit, Query(f"topk(10, {expr})", "{{cluster}}/{{topic}}")
    )


def _rate(name: str) -> str:
    """Return a panel by topic, without the series that is the sum of all topics."""
    return f'sum by ({TOPIC}) (rate({TRAFFIC}{name}_total{{{CHOSEN},topic!=""}}{RATE}))'


def _topics() -> Panel:
    keys = {"namespace": "Namespace", "cluster": "Cluster", "topic": "Topic"}
    columns = [
        Column("Partitions", f"count by ({TOPIC}) ({_one_each('replicas')})"),
        Column("Replicas", f"max by ({TOPIC}) ({_one_each('replicas')})"),
        Column("Fewest in sync", f"min by ({TOPIC}) ({_one_each('in_sync_replica')})"),
        Column(
            "Under-replicated",
            f"sum by ({TOPIC}) ({_one_each('under_replicated_partition')})",
            steps=((1, YELLOW),),
        ),
        Column("Records kept", f"sum by ({TOPIC}) ({_one_each('current_offset')} - {_one_each('oldest_offset')})"),
        Column("On disks", f"sum by ({TOPIC}) (kafka_log_log_size{{{CHOSEN}}})", "bytes"),
        Column("Records in", _rate("messagesin"), "cps"),
        Column("Bytes in", _rate("bytesin"), "Bps"),
        Column("Bytes out", _rate("bytesout"), "Bps"),
    ]
    link = (
        "Its partitions",
        "/d/barnabas-topics?${datasource:queryparam}&var-topic=${__value.raw:percentencode}&${__url_time_range}",
    )
    return rows(
        "Topics",
        "Records kept: the offsets between the first record and the next one; compaction may have left fewer records.",
        keys,
        columns,
        sort_by="Bytes in",
        links={"topic": link},
    )


def _partitions() -> Panel:
    keys = {"namespace": "Namespace", "cluster": "Cluster", "topic": "Topic", "partition": "Partition"}
    columns = [
        Column("Leader", _one_each("leader")),
        Column("Preferred", _one_each("leader_is_preferred"), words={0: ("no", YELLOW), 1: ("yes", GREEN)}),
        Column("Replicas", _one_each("replicas")),
        Column("In sync", _one_each("in_sync_replica")),
        Column("At the minimum", _minimum("atminisr"), words={0: ("no", GREEN), 1: ("yes", YELLOW)}),
        Column("Refuses acks=all", _minimum("underminisr"), words={0: ("no", GREEN), 1: ("yes", RED)}),
        Column("First offset", _one_each("oldest_offset"), "none"),
        Column("Next offset", _one_each("current_offset"), "none"),
        Column("Size", f"max by ({PARTITION}) (kafka_log_log_size{{{CHOSEN}}})", "bytes"),
    ]
    return rows(
        "Partitions",
        "The state that the leaders report. At the minimum: with one replica fewer in sync acks=all is refused.",
        keys,
        columns,
        sort_by="In sync",
        descending=False,
        height=14,
    )


def _minimum(name: str) -> str:
    return f"max by ({PARTITION}) (kafka_cluster_partition_{name}{{{CHOSEN}}})"
