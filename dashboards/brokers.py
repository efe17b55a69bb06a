"""The dashboard of brokers: which are up, whether replicas keep up, the traffic, and the room on machine and disks."""

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards import transactions
from dashboards.frame import clusters, dashboard
from dashboards.panels import RED, YELLOW, Panel, Query, bars, graph, number

CHOSEN: Final = 'namespace=~"$namespace",cluster=~"$cluster"'
OF_BROKER: Final = f'{CHOSEN},broker=~"$broker"'
EACH: Final = "namespace, cluster, broker"
NAME: Final = "{{cluster}}/{{broker}}"
RATE: Final = "[$__rate_interval]"
TRAFFIC: Final = "kafka_server_brokertopicmetrics_"
REPLICAS: Final = "kafka_server_replicamanager_"
CONTROLLER: Final = "kafka_controller_kafkacontroller_"
TIMES: Final = "kafka_network_requestmetrics_totaltimems_bucket"
BAD: Final = (1, RED)


def made() -> Dashboard:
    """Return the dashboard."""
    return dashboard(
        "brokers",
        "Brokers",
        "Are all brokers up, do replicas keep up, how long do requests take, and how much room is left?",
        (
            *clusters("kafka_server_replicamanager_partitioncount"),
            ("broker", f"kafka_server_replicamanager_partitioncount{{{CHOSEN}}}"),
        ),
        ("State", _state()),
        ("Traffic and requests", _traffic()),
        ("Replication and moves", _replication()),
        ("Machine", _machine()),
        ("Disks and compaction", _disks()),
        ("Transactions", transactions.panels(CHOSEN)),
    )


def _told_by_all(metric: str) -> str:
    """Return a query of values that every broker of a cluster reports alike, so that one counts."""
    return f"sum(max by (namespace, cluster) ({metric}{{{CHOSEN}}}))"


def _summed(metric: str) -> str:
    return f"sum({metric}{{{CHOSEN}}})"


def _rate_by_broker(metric: str, more: str = "") -> str:
    return f"sum by ({EACH}) (rate({metric}{{{OF_BROKER}{more}}}{RATE}))"


def _state() -> list[Panel]:
    return [
        number("Brokers up", "Brokers whose lease is in force.", _told_by_all(f"{CONTROLLER}activebrokercount")),
        number(
            "Brokers down",
            "Brokers of the cluster that do not renew their lease.",
            _told_by_all(f"{CONTROLLER}fencedbrokercount"),
            "short",
            BAD,
        ),
        number("Controllers", "One for each cluster.", _summed(f"{CONTROLLER}activecontrollercount")),
        number(
            "Offline partitions",
            "Partitions that no broker leads.",
            _told_by_all(f"{CONTROLLER}offlinepartitionscount"),
            "short",
            BAD,
        ),
        *_unsafe(),
    ]


def _unsafe() -> list[Panel]:
    """Return the panels about records that are in danger, or lost."""
    return [
        number(
            "Refuse acks=all",
            "Partitions with fewer replicas in sync than min.insync.replicas.",
            _summed(f"{REPLICAS}underminisrpartitioncount"),
            "short",
            BAD,
        ),
        number(
            "Under-replicated",
            "Partitions that lack a replica in sync.",
            _summed(f"{REPLICAS}underreplicatedpartitions"),
            "short",
            (1, YELLOW),
        ),
        number(
            "Records lost",
            "Partitions that are offline because every replica lacks committed records.",
            _told_by_all("barnabas_partitions_lacking_records"),
            "short",
            BAD,
        ),
        number(
            "Failed disks",
            "Log directories that cannot be used.",
            _summed("kafka_log_logmanager_offlinelogdirectorycount"),
            "short",
            BAD,
        ),
    ]


def _traffic() -> list[Panel]:
    by_api = f"sum by (request) (rate(kafka_network_requestmetrics_requests_total{{{OF_BROKER}}}{RATE}))"
    busy = f"sum by (request) (rate(kafka_network_requestmetrics_localtime_seconds_total{{{OF_BROKER}}}{RATE}))"
    return [
        _flow("Records in", "Records a second that clients wrote.", "short", "messagesin_total"),
        _flow("Bytes in", "Bytes a second that clients wrote.", "Bps", "bytesin_total"),
        _flow("Bytes out", "Bytes a second that clients read.", "Bps", "bytesout_total"),
        _times(
            "Produce", "Time from the request to the answer; with acks=all this includes the wait for the replicas."
        ),
        _times(
            "Fetch",
            "Time from the request to the answer; a consumer that has read all waits up to fetch.max.wait.ms.",
        ),
        graph(
            "Connections",
            "Open connections of clients and brokers.",
            "short",
            Query(f"sum by ({EACH}) (kafka_server_socketserver_connectioncount{{{OF_BROKER}}})", NAME),
        ),
        graph(
            "Requests",
            "Requests a second by API, the ten most frequent.",
            "reqps",
            Query(f"topk(10, {by_api} > 0)", "{{request}}"),
            span=12,
        ),
        graph(
            "Time in handlers",
            "Seconds of work a second by API, the ten that take most.",
            "s",
            Query(f"topk(10, {busy} > 0)", "{{request}}"),
            span=12,
        ),
    ]


def _flow(title: str, about: str, unit: str, counter: str) -> Panel:
    """Return a panel of traffic by broker, stacked; it sums by topic, because a further series has the sum of all."""
    return graph(title, about, unit, Query(_rate_by_broker(TRAFFIC + counter, ',topic!=""'), NAME), stacked=True)


def _times(request: str, about: str) -> Panel:
    counts = f'sum by ({EACH}, le) (rate({TIMES}{{{OF_BROKER},request="{request}"}}{RATE}))'
    half, most = (f"histogram_quantile({share}, {counts})" for share in (0.5, 0.99))
    return graph(f"{request} time", about, "ms", Query(most, f"{NAME} 99 %"), Query(half, f"{NAME} 50 %"))


def _replication() -> list[Panel]:
    lacking = f"sum by ({EACH}) ({REPLICAS}underreplicatedpartitions{{{OF_BROKER}}})"
    at_min = f"sum by ({EACH}) ({REPLICAS}atminisrpartitioncount{{{OF_BROKER}}})"
    return [
        graph(
            "Under-replicated partitions",
            "By the leading broker; partitions at min.insync.replicas refuse acks=all if one more replica is lost.",
            "short",
            Query(lacking, NAME),
            Query(at_min, f"{NAME} at the minimum"),
        ),
        graph(
            "In-sync replicas that come and go",
            "Changes a second; both lines rise when a broker restarts.",
            "short",
            Query(_rate_by_broker(f"{REPLICAS}isrshrinks_total"), f"{NAME} out"),
            Query(_rate_by_broker(f"{REPLICAS}isrexpands_total"), f"{NAME} in"),
        ),
        graph(
            "Largest lag of a follower",
            "Records that a follower on this broker does not have yet.",
            "short",
            Query(f"max by ({EACH}) (kafka_server_replicafetchermanager_maxlag{{{OF_BROKER}}})", NAME),
        ),
        *_moves(),
    ]


def _moves() -> list[Panel]:
    """Return the panels about replication, and about the places of partitions."""
    moving = f"sum by (namespace, cluster) ({REPLICAS}reassigningpartitions{{{CHOSEN}}})"
    uneven = f"max by (namespace, cluster) ({CONTROLLER}preferredreplicaimbalancecount{{{CHOSEN}}})"
    elections = (
        f"sum by (namespace, cluster) (rate(kafka_controller_controllerstats_leaderelections_total{{{CHOSEN}}}{RATE}))"
    )
    return [
        graph(
            "Replication",
            "Bytes a second that brokers fetch from each other.",
            "Bps",
            Query(_rate_by_broker(f"{TRAFFIC}replicationbytesin_total"), f"{NAME} in"),
            Query(_rate_by_broker(f"{TRAFFIC}replicationbytesout_total"), f"{NAME} out"),
        ),
        graph(
            "Partitions",
            "Replicas on each broker, and how many of them lead.",
            "short",
            Query(f"sum by ({EACH}) ({REPLICAS}partitioncount{{{OF_BROKER}}})", NAME),
            Query(f"sum by ({EACH}) ({REPLICAS}leadercount{{{OF_BROKER}}})", f"{NAME} leads"),
        ),
        graph(
            "Moves and elections",
            "Partitions that get other replicas, those not led by their preferred replica, elections a second.",
            "short",
            Query(moving, "{{cluster}} moving"),
            Query(uneven, "{{cluster}} not preferred"),
            Query(elections, "{{cluster}} elections"),
        ),
    ]


def _machine() -> list[Panel]:
    turns = (
        f"histogram_quantile(0.99, sum by ({EACH}, le) (rate(barnabas_loop_turn_seconds_bucket{{{OF_BROKER}}}{RATE})))"
    )
    longest = f"max by ({EACH}) (barnabas_loop_longest_turn_seconds{{{OF_BROKER}}})"
    return [
        graph(
            "Idle",
            "Share of the last minute in which the event loop had nothing to do; below 10 % requests wait.",
            "percentunit",
            Query(
                f"min by ({EACH}) (kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{{{OF_BROKER}}})",
                NAME,
            ),
        ),
        graph(
            "Turns of the event loop",
            "Everything else waits during a turn: the 99th percentile, and the longest of the last minute.",
            "s",
            Query(turns, f"{NAME} 99 %"),
            Query(longest, f"{NAME} longest"),
        ),
        *_process(),
    ]


def _process() -> list[Panel]:
    """Return the panels about the processes of brokers."""
    # Of all processes of a machine, only those with a broker's label count.
    process = f'{OF_BROKER},broker!=""'
    return [
        graph(
            "CPU",
            "Cores that the process uses.",
            "short",
            Query(f"sum by ({EACH}) (rate(process_cpu_seconds_total{{{process}}}{RATE}))", NAME),
        ),
        graph(
            "Memory",
            "Resident memory of the process.",
            "bytes",
            Query(f"sum by ({EACH}) (process_resident_memory_bytes{{{process}}})", NAME),
        ),
        graph(
            "Open files",
            "Open files and sockets, as a share of the limit.",
            "percentunit",
            Query(f"max by ({EACH}) (process_open_fds{{{process}}} / process_max_fds{{{process}}})", NAME),
        ),
        graph(
            "Running for",
            "Time since the process started.",
            "s",
            Query(f"time() - max by ({EACH}) (process_start_time_seconds{{{process}}})", NAME),
        ),
    ]


def _disks() -> list[Panel]:
    usable, total = (f"barnabas_log_dir_{name}_bytes{{{OF_BROKER}}}" for name in ("usable", "total"))
    used = f"max by ({EACH}, log_dir) (1 - {usable} / {total})"
    left = f"min by ({EACH}, log_dir) ({usable})"
    logs = f"sum by ({EACH}) (kafka_log_log_size{{{OF_BROKER}}})"
    dirty = f"max by ({EACH}) (kafka_log_logcleanermanager_max_dirty_percent{{{OF_BROKER}}})"
    failing = f"sum by ({EACH}) (kafka_log_logcleanermanager_uncleanable_partitions_count{{{OF_BROKER}}})"
    stray = f"sum by ({EACH}) (barnabas_stray_log_bytes{{{OF_BROKER}}})"
    disk = f"{NAME} {{{{log_dir}}}}"
    return [
        bars(
            "Disks in use",
            "Share of the disk of each log directory that is used.",
            "percentunit",
            Query(used, disk),
            (0.85, YELLOW),
            (0.95, RED),
            top=1,
        ),
        graph("Room left", "Bytes that can still be written.", "bytes", Query(left, disk)),
        graph(
            "Logs",
            "Bytes of all logs. Logs of topics that the metadata does not know are set aside.",
            "bytes",
            Query(logs, NAME),
            Query(stray, f"{NAME} set aside"),
        ),
        graph(
            "Dirtiest log", "Share of the log that compaction has not yet read.", "percent", Query(dirty, NAME), span=12
        ),
        graph(
            "Partitions that cannot be compacted",
            "Compaction of these fails, and is tried again; the log of the broker says why.",
            "short",
            Query(failing, NAME),
            span=12,
        ),
    ]
