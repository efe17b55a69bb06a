"""Replicas that copy records: a broker that restarts and catches up, and partitions that move to another broker."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from kafka.protocol.admin import (
    AlterPartitionReassignmentsRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
)

from bench.clients.job import NotRun
from bench.clients.pulse import RawPulse
from bench.clusters import BROKERS, Cluster
from bench.metrics import Measurement
from bench.scenarios.failover import led_topic, others
from bench.scenarios.load import Produce
from bench.scenarios.stand import Stand
from harness.ask import ask
from harness.deadline import wait_for

PARTITIONS: Final = 6
RECORD_BYTES: Final = 1000
BATCH_BYTES: Final = 200_000
FILL_SECONDS_MAX: Final = 60.0
COPY_SECONDS_MAX: Final = 90.0
POLL_S: Final = 0.01
QUIET_S: Final = 1.0
REQUEST_SECONDS_MAX: Final = 20.0
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
SET: Final = 0
DELETE: Final = 1
THROTTLES: Final = ("leader.replication.throttled", "follower.replication.throttled")


def _fill(stand: Stand, cluster: Cluster, name: str) -> float:
    """Return the bytes of record values that every in-sync replica now has."""
    filler = Produce(
        client="librdkafka",
        record_bytes=RECORD_BYTES,
        batch_bytes=BATCH_BYTES,
        codec="none",
        acks="all",
        partitions=PARTITIONS,
    )
    counted = stand.clients.librdkafka().run(
        filler.job(name, FILL_SECONDS_MAX, stand.limits.move_bytes), cluster.bootstrap
    )
    return counted["bytes"]


def _bytes_on_disk(cluster: Cluster, broker: int, topic: str) -> int:
    """Return the bytes of this topic's segments on this broker; both kinds of broker have the same layout."""
    folders = [folder for log_dir in cluster.log_dirs(broker) for folder in log_dir.glob(f"{topic}-*")]
    return sum(segment.stat().st_size for folder in folders for segment in folder.glob("*.log"))


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A follower stops, the leaders accept records, it starts again: the time until it is in every ISR."""

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Measure the rate from the first copied byte on, so without the start of the process."""
        cluster = stand.clusters.standing(peer)
        away = max(cluster.brokers)
        leaders = others(cluster, away)
        assignment = [[*leaders[:: 1 if number % 2 else -1], away] for number in range(PARTITIONS)]
        with led_topic(cluster, stand.new_topic_name(), assignment) as name:
            cluster.stop(away)
            filled_bytes = _fill(stand, cluster, name)
            started_s = time.monotonic()
            cluster.brokers[away].launch()
            wait_for(lambda: _bytes_on_disk(cluster, away, name) > 0, seconds_max=COPY_SECONDS_MAX)
            first_s = time.monotonic()
            wait_for(lambda: _in_every_isr(cluster, leaders[0], name, away), seconds_max=COPY_SECONDS_MAX)
            full_s = time.monotonic()
            cluster.wait_until_joined()
        return {"mb_per_s": filled_bytes / 1e6 / (full_s - first_s), "back_s": full_s - started_s}


def _in_every_isr(cluster: Cluster, told_by: int, topic: str, broker: int) -> bool:
    return all(broker in view.isr for view in cluster.describe(topic, as_told_by=told_by))


@dataclass(frozen=True, slots=True)
class Reassignment:
    """The second replica of each of six partitions moves to the third broker, while a producer works on another topic.

    `throttle_bytes_per_s`: each broker's rate; the rate is measured for a while after the first second, then the
    throttle is removed. Without it the rate is of all bytes, until no reassignment is in progress.
    """

    throttle_bytes_per_s: int | None = None

    def measure(self, stand: Stand, peer: str) -> Measurement:
        """Return MB copied a second over all brokers, and the producer's p99 before and during the move."""
        cluster = stand.clusters.standing(peer)
        brokers = list(cluster.brokers)
        turned = [brokers[number % BROKERS :] + brokers[: number % BROKERS] for number in range(PARTITIONS)]
        with (
            led_topic(cluster, stand.new_topic_name(), [brokers]) as beside,
            led_topic(cluster, stand.new_topic_name(), [[first, second] for first, second, _ in turned]) as name,
        ):
            filled_bytes = _fill(stand, cluster, name)
            targets = {number: [first, third] for number, (first, _, third) in enumerate(turned)}
            ports = [broker.port for broker in cluster.brokers.values()]
            with RawPulse(ports, beside) as pulse:
                begun_s = time.monotonic()
                pulse.await_beats(begun_s, REQUEST_SECONDS_MAX)
                time.sleep(QUIET_S)
                moving_s = time.monotonic()
                if self.throttle_bytes_per_s is None:
                    _reassign(cluster, name, targets)
                    _await_no_reassignment(cluster)
                    done_s = time.monotonic()
                    moved_mb_per_s = filled_bytes / 1e6 / (done_s - moving_s)
                else:
                    with _throttled(cluster, name, self.throttle_bytes_per_s):
                        moving_s = time.monotonic()
                        _reassign(cluster, name, targets)
                        moved_mb_per_s = _watched_mb_per_s(cluster, name, stand.limits.watch_s)
                        done_s = time.monotonic()
                    _await_no_reassignment(cluster)
                return {
                    "mb_per_s": moved_mb_per_s,
                    "quiet_p99_us": pulse.p99_us(begun_s, moving_s),
                    "p99_us": pulse.p99_us(moving_s, done_s),
                }


def _any_port(cluster: Cluster) -> int:
    return cluster.brokers[cluster.running[0]].port


def _reassign(cluster: Cluster, topic: str, targets: Mapping[int, Sequence[int]]) -> None:
    of_topic = AlterPartitionReassignmentsRequest.ReassignableTopic
    partitions = [
        of_topic.ReassignablePartition(partition_index=number, replicas=list(replicas))
        for number, replicas in targets.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=int(REQUEST_SECONDS_MAX * 1e3), topics=[of_topic(name=topic, partitions=partitions)]
    )
    answer = ask(_any_port(cluster), request, 0, REQUEST_SECONDS_MAX)
    codes = {answer.error_code} | {part.error_code for each in answer.responses for part in each.partitions}
    if codes != {0}:
        raise NotRun(f"AlterPartitionReassignments: error codes {sorted(codes)}")


def _await_no_reassignment(cluster: Cluster) -> None:
    deadline = time.monotonic() + COPY_SECONDS_MAX
    while time.monotonic() < deadline:
        request = ListPartitionReassignmentsRequest(timeout_ms=int(REQUEST_SECONDS_MAX * 1e3), topics=None)
        if not ask(_any_port(cluster), request, 0, REQUEST_SECONDS_MAX).topics:
            return
        time.sleep(POLL_S)
    raise NotRun(f"still reassigning after {COPY_SECONDS_MAX:.0f} s")


def _watched_mb_per_s(cluster: Cluster, topic: str, watch_s: float) -> float:
    """Return the growth of all replicas after the first second, in which there is a burst."""
    time.sleep(QUIET_S)
    before, begun_s = _all_bytes(cluster, topic), time.monotonic()
    time.sleep(watch_s)
    return (_all_bytes(cluster, topic) - before) / 1e6 / (time.monotonic() - begun_s)


def _all_bytes(cluster: Cluster, topic: str) -> int:
    return sum(_bytes_on_disk(cluster, broker, topic) for broker in cluster.brokers)


@contextmanager
def _throttled(cluster: Cluster, topic: str, bytes_per_s: int) -> Iterator[None]:
    """Set throttles as `kafka-reassign-partitions --throttle` does: rates on brokers, all replicas of the topic."""
    _alter_throttle(cluster, topic, bytes_per_s, SET)
    try:
        yield
    finally:
        _alter_throttle(cluster, topic, bytes_per_s, DELETE)


def _alter_throttle(cluster: Cluster, topic: str, bytes_per_s: int, operation: int) -> None:
    """Send each broker its own settings: only that broker accepts them."""
    _alter(_any_port(cluster), TOPIC_RESOURCE, topic, {f"{name}.replicas": "*" for name in THROTTLES}, operation)
    rates = {f"{name}.rate": str(bytes_per_s) for name in THROTTLES}
    for number, broker in cluster.brokers.items():
        _alter(broker.port, BROKER_RESOURCE, str(number), rates, operation)


def _alter(port: int, resource_type: int, name: str, settings: Mapping[str, str], operation: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    changes = [
        resource.AlterableConfig(name=setting, config_operation=operation, value=value)
        for setting, value in settings.items()
    ]
    changed = resource(resource_type=resource_type, resource_name=name, configs=changes)
    answer = ask(port, IncrementalAlterConfigsRequest(resources=[changed]), 1, REQUEST_SECONDS_MAX)
    if answer.responses[0].error_code:
        raise NotRun(f"IncrementalAlterConfigs: error code {answer.responses[0].error_code}")
