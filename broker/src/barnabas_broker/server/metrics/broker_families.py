"""The metrics of traffic, replicas and disks, under the names that Strimzi's JMX exporter rules give Kafka's MBeans."""

import os
import resource
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_broker.handlers.batch_trust import BatchTrust
from barnabas_broker.handlers.handler_environment import ClientQuotas
from barnabas_broker.metadata.controller.decisions.cluster_settings import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas_broker.security.authorizer import Authorizer, Refusal
from barnabas_broker.server.dispatch import TIME_BOUNDS_MS, RequestStats
from barnabas_broker.server.metrics.exposition import (
    Family,
    Hosted,
    Sample,
    TopicTotals,
    Totals,
    by_partition,
    labels,
    single,
)
from barnabas_broker.server.sasl_session import AuthenticationCounts
from barnabas_broker.storage.disk.files import DiskUsage
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_manager import LogManager
from barnabas_core.acls import OPERATIONS
from barnabas_core.loop_turns import Turn


def broker_families(trust: BatchTrust, logs: LogManager, hosted: Hosted) -> list[Family]:
    """Return the metric families for traffic, replicas and log dirs."""
    return [
        *_traffic(hosted.totals),
        _invalid_batches(trust),
        *_replicas(logs, hosted.totals),
        *_logs(logs, hosted),
        *disk_families(logs.log_dirs),
    ]


def _traffic(totals: Totals) -> list[Family]:
    return [
        _topic_counter(
            totals,
            "messagesin",
            "Number of records appended by clients; the series without a topic is the sum over all topics",
            lambda each: each.messages_in,
        ),
        _topic_counter(
            totals,
            "bytesin",
            "Bytes appended by clients; the series without a topic is the sum over all topics",
            lambda each: each.bytes_in,
        ),
        _topic_counter(
            totals,
            "bytesout",
            "Bytes read by clients; the series without a topic is the sum over all topics",
            lambda each: each.bytes_out,
        ),
    ]


def _topic_counter(totals: Totals, name: str, help_text: str, value: Callable[[TopicTotals], int]) -> Family:
    def samples() -> Iterator[Sample]:
        total = 0
        for topic, of_topic in totals.topics.items():
            total += value(of_topic)
            yield Sample(labels(topic=topic), value(of_topic))
        yield Sample("", total)

    return Family(f"kafka_server_brokertopicmetrics_{name}_total", "counter", help_text, samples)


def _invalid_batches(trust: BatchTrust) -> Family:
    def samples() -> Iterator[Sample]:
        for (client_id, outcome), count in trust.invalid.items():
            yield Sample(labels(client_id=client_id, outcome=outcome), count)

    name = "barnabas_invalid_batches_total"
    help_text = (
        "Number of batches whose header contradicted their records, by client id and outcome (refused or corrected)"
    )
    return Family(name, "counter", help_text, samples)


def _replicas(logs: LogManager, totals: Totals) -> list[Family]:
    counts = {
        "partitioncount": ("Number of partitions that have a replica on this broker", totals.partitions),
        "leadercount": ("Number of partitions that this broker leads", totals.led),
        "underreplicatedpartitions": (
            "Number of partitions that this broker leads and that have out-of-sync replicas",
            totals.under_replicated,
        ),
        "underminisrpartitioncount": (
            "Number of partitions that this broker leads and that refuse acks=all for lack of in-sync replicas",
            totals.under_min_isr,
        ),
        "offlinereplicacount": (
            "Number of replicas on this broker that are offline because their disk failed",
            totals.offline,
        ),
        "produceridcount": (
            "Number of idempotent producers whose state this broker keeps, summed over its partitions",
            logs.producer_count,
        ),
    }
    return [
        single(f"kafka_server_replicamanager_{name}", "gauge", help_text, value)
        for name, (help_text, value) in counts.items()
    ]


def _logs(logs: LogManager, hosted: Hosted) -> list[Family]:
    return [
        single(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "gauge",
            "Number of log dirs that are offline because their disk failed",
            sum(not each.is_online for each in logs.log_dirs),
        ),
        by_partition(
            hosted,
            "kafka_log_log_size",
            "Size in bytes of the replica's log on this broker",
            lambda each: each.log.segments.size_bytes,
        ),
        by_partition(
            hosted,
            "kafka_log_log_numlogsegments",
            "Number of segments of the replica's log on this broker",
            lambda each: len(each.log.segments),
        ),
        by_partition(
            hosted,
            "kafka_log_log_logstartoffset",
            "Log start offset of the replica on this broker",
            lambda each: each.log.log_start_offset,
        ),
        by_partition(
            hosted,
            "kafka_log_log_logendoffset",
            "Log end offset of the replica on this broker",
            lambda each: each.log.log_end_offset,
        ),
    ]


def disk_families(log_dirs: Sequence[LogDir]) -> list[Family]:
    """Return the metric families for the disk space of each online log dir."""
    free = "Free bytes that the broker can use on the disk of a log dir"
    return [
        _of_disk(
            log_dirs,
            "barnabas_log_dir_total_bytes",
            "Total bytes of the disk of a log dir",
            lambda usage: usage.total_bytes,
        ),
        _of_disk(log_dirs, "barnabas_log_dir_usable_bytes", free, lambda usage: usage.usable_bytes),
    ]


def _of_disk(log_dirs: Sequence[LogDir], name: str, help_text: str, value: Callable[[DiskUsage], int]) -> Family:
    """Return a metric family for the online log dirs only: the usage of an offline log dir may be wrong."""

    def samples() -> Iterator[Sample]:
        for each in log_dirs:
            if each.is_online:
                with suppress(StorageError):
                    yield Sample(labels(log_dir=each.path), value(each.usage()))

    return Family(name, "gauge", help_text, samples)


PROC: Final = Path("/proc")
RESIDENT_PAGES: Final = 1
"""The index of the number of resident pages in `/proc/self/statm`."""
START_TICKS: Final = 19
"""The index of the start time in `/proc/self/stat`, counted after the name, which may contain blanks."""


class ProcessUsage(NamedTuple):
    """The resource usage that the kernel reports."""

    resident_bytes: int
    cpu_s: float
    started_s: float
    """The start of the process as Unix time in seconds."""
    open_fds: int
    fds_max: int


def process_families(usage: ProcessUsage | None) -> list[Family]:
    """Return the metric families; the list is empty if the usage is unknown."""
    if usage is None:
        return []
    return [
        single(
            "process_resident_memory_bytes", "gauge", "Resident memory of the process in bytes", usage.resident_bytes
        ),
        single("process_cpu_seconds_total", "counter", "CPU seconds that the process has used", usage.cpu_s),
        single("process_start_time_seconds", "gauge", "Start of the process as Unix time in seconds", usage.started_s),
        single("process_open_fds", "gauge", "Number of open files and sockets", usage.open_fds),
        single("process_max_fds", "gauge", "Maximum number of open files and sockets", usage.fds_max),
    ]


def read_usage() -> ProcessUsage | None:
    """Return the usage of this process, or None without /proc; the call blocks."""
    try:
        return ProcessUsage(
            resident_bytes=int((PROC / "self/statm").read_text().split()[RESIDENT_PAGES]) * resource.getpagesize(),
            cpu_s=sum(os.times()[:2]),
            started_s=_boot_s() + _start_ticks() / os.sysconf("SC_CLK_TCK"),
            open_fds=len(os.listdir(PROC / "self/fd")),
            fds_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        )
    except FileNotFoundError:
        return None


def _start_ticks() -> int:
    return int((PROC / "self/stat").read_text().rpartition(")")[2].split()[START_TICKS])


def _boot_s() -> int:
    """Return the Unix time of the boot in seconds."""
    lines = (PROC / "stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))


def loop_families(
    bounds_s: Sequence[float],
    counts: Sequence[int],
    total_s: Callable[[], float],
    longest: Callable[[], Turn | None],
) -> list[Family]:
    """Return the metric families of the event loop's turns.

    `counts` has the number of turns in each bucket of `bounds_s`, and at its end the number of longer turns.
    """

    def buckets() -> Iterator[Sample]:
        sums = list(accumulate(counts))
        for bound, count in zip((*bounds_s, "+Inf"), sums, strict=True):
            yield Sample(labels(le=bound), count, "_bucket")
        yield Sample("", total_s(), "_sum")
        yield Sample("", sums[-1], "_count")

    def of_longest(value: Callable[[Turn], float]) -> list[Sample]:
        turn = longest()
        return [] if turn is None else [Sample(labels(what=turn.what), value(turn))]

    return [
        Family(
            "barnabas_loop_turn_seconds",
            "histogram",
            "Duration in seconds of the iterations of the event loop",
            buckets,
        ),
        Family(
            "barnabas_loop_longest_turn_seconds",
            "gauge",
            "Duration in seconds of the longest iteration of the event loop in the last minute, by the code that used "
            "most of that time",
            lambda: of_longest(lambda turn: turn.seconds),
        ),
        Family(
            "barnabas_loop_longest_turn_cpu_seconds",
            "gauge",
            "CPU seconds that the longest iteration of the event loop in the last minute used",
            lambda: of_longest(lambda turn: turn.cpu_s),
        ),
    ]


_SOCKETS: Final = "kafka_server_socket_server_metrics_"


class Traffic(NamedTuple):
    """The objects and functions that supply the values of the request metrics.

    `idle_share` returns the idle share of the event loop, from 0 to 1.
    """

    requests: Collection[RequestStats]
    connections: Callable[[], int]
    idle_share: Callable[[], float]
    authentication: Mapping[str, AuthenticationCounts] = MappingProxyType({})
    """The authentication counts by listener."""


def request_families(traffic: Traffic) -> list[Family]:
    """Return the metric families; the idle metrics of Kafka's thread pools show the idle share of the event loop."""
    prefix = "kafka_network_requestmetrics_"
    return [
        _by_api(traffic, f"{prefix}requests_total", "Number of requests, by API", lambda each: each.count),
        _by_api(
            traffic,
            f"{prefix}localtime_seconds_total",
            "Seconds that the request handlers took, by API",
            lambda each: each.busy_s,
        ),
        Family(
            f"{prefix}totaltimems",
            "histogram",
            "Time from a request to its response in milliseconds, by API",
            lambda: _total_times(traffic.requests),
        ),
        _of_api(traffic, "Produce"),
        _of_api(traffic, "Fetch"),
        single(
            "kafka_server_socketserver_connectioncount", "gauge", "Number of open connections", traffic.connections()
        ),
        _idle(traffic, "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"),
        *_authentication(traffic.authentication),
        _idle(traffic, "kafka_network_socketserver_networkprocessoravgidle_percent"),
    ]


def _by_api(traffic: Traffic, name: str, help_text: str, value: Callable[[RequestStats], float]) -> Family:
    return Family(
        name,
        "counter",
        help_text,
        lambda: [Sample(labels(request=each.name), value(each)) for each in traffic.requests],
    )


def _total_times(requests: Collection[RequestStats]) -> Iterator[Sample]:
    """Yield the histograms of the APIs that have had responses."""
    for each in requests:
        counts = list(accumulate(each.time_counts))
        if not counts[-1]:
            continue
        for bound, count in zip((*TIME_BOUNDS_MS, "+Inf"), counts, strict=True):
            yield Sample(labels(request=each.name, le=bound), count, "_bucket")
        yield Sample(labels(request=each.name), each.total_s * 1000, "_sum")
        yield Sample(labels(request=each.name), counts[-1], "_count")


def _of_api(traffic: Traffic, name: str) -> Family:
    return Family(
        f"kafka_server_brokertopicmetrics_total{name.lower()}requests_total",
        "counter",
        f"Number of {name} requests",
        lambda: [Sample("", each.count) for each in traffic.requests if each.name == name],
    )


def _idle(traffic: Traffic, name: str) -> Family:
    help_text = "Share of the last minute, from 0 to 1, in which the event loop was idle"
    return single(name, "gauge", help_text, traffic.idle_share())


def _authentication(by_listener: Mapping[str, AuthenticationCounts]) -> list[Family]:
    """Return the authentication counters by listener; for a listener with neither SASL nor TLS they stay 0."""

    def family(name: str, help_text: str, value: Callable[[AuthenticationCounts], int]) -> Family:
        return Family(
            f"{_SOCKETS}{name}",
            "counter",
            help_text,
            lambda: [Sample(labels(listener=name), value(counts)) for name, counts in by_listener.items()],
        )

    return [
        family(
            "successful_authentication_total",
            "Number of successful authentications, without re-authentications",
            lambda counts: counts.succeeded_first,
        ),
        family(
            "successful_reauthentication_total",
            "Number of re-authentications (KIP-368) that succeeded",
            lambda counts: counts.succeeded_again,
        ),
        family("failed_authentication_total", "Number of authentications that failed", lambda counts: counts.failed),
        family(
            "expired_connections_killed_total",
            "Number of connections closed because the client did not re-authenticate before its session expired",
            lambda counts: counts.expired,
        ),
        Family(
            "barnabas_failed_authentications_total",
            "counter",
            "Number of failed authentications by SASL mechanism; the mechanism is `TLS` for a failed TLS handshake, "
            "and `none` if the client chose no mechanism",
            lambda: [
                Sample(labels(listener=name, mechanism=mechanism), failures)
                for name, counts in by_listener.items()
                for mechanism, failures in counts.failures.items()
            ],
        ),
    ]


def authorizer_families(authorizer: Authorizer | None) -> list[Family]:
    """Return the counter of denied requests; it has no sample without an authorizer."""
    return [
        Family(
            "barnabas_authorizer_refusals_total",
            "counter",
            "Number of operations that the authorizer denied, by operation and resource type",
            lambda: [] if authorizer is None else _samples(authorizer),
        )
    ]


def _samples(authorizer: Authorizer) -> list[Sample]:
    """Return a sample for each operation and resource type, with 0 for operations that were never denied."""
    known = [Refusal(operation.name, kind.name) for kind, operations in OPERATIONS.items() for operation in operations]
    refusals = {**dict.fromkeys(known, 0), **authorizer.audit.refusals}
    return [
        Sample(labels(operation=each.operation, resource_type=each.resource_type), count)
        for each, count in refusals.items()
    ]


_KINDS: Final[Mapping[str, str]] = {
    PRODUCER_BYTE_RATE: "produce",
    CONSUMER_BYTE_RATE: "fetch",
    REQUEST_PERCENTAGE: "request",
    CONTROLLER_MUTATION_RATE: "controllermutation",
}


def quota_families(quotas: ClientQuotas) -> list[Family]:
    """Return a family for each quota; clients without a quota have no sample."""
    return [_throttle_times(quotas, key, kind) for key, kind in _KINDS.items()]


def _throttle_times(quotas: ClientQuotas, key: str, kind: str) -> Family:
    return Family(
        f"kafka_server_{kind}_throttle_time_ms_total",
        "counter",
        f"Milliseconds for which the quota {key} throttled the user or client id",
        lambda: [
            Sample(labels(user=each.user, client_id=each.client_id), each.throttled_ms)
            for each in quotas.counters()
            if each.key == key
        ],
    )
