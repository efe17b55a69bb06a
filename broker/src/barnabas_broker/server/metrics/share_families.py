"""The metrics of share groups on this broker, as the leader of partitions that they consume."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from barnabas_broker.coordinators.share_delivery.led_partition import DeliveryCounts, LedPartition
from barnabas_broker.coordinators.share_delivery.window import RecordState
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single

_TYPES: Final = ("gap", "accept", "release", "reject", "renew")
"""The names of the acknowledgement types, by their numbers."""


def share_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families for the share groups of this broker."""
    return [*_of_groups(environment), *_of_partitions(environment)]


def _of_groups(environment: HandlerEnvironment) -> list[Family]:
    shares = environment.shares

    def family(name: str, help_text: str, count: Callable[[DeliveryCounts], int]) -> Family:
        def samples() -> Iterator[Sample]:
            for group_id, counts in list(shares.counts.items()):
                yield Sample(labels(group=group_id), count(counts))

        return Family(name, "counter", help_text, samples)

    return [
        single("barnabas_share_sessions", "gauge", "Number of share sessions on this broker", len(shares.sessions)),
        Family(
            "kafka_server_sharegroupmetrics_recordacknowledgements_total",
            "counter",
            "Number of records that members of a share group have acknowledged, by the type of acknowledgement",
            partial(_acknowledged, shares.counts),
        ),
        Family(
            "barnabas_share_deliveries_total",
            "counter",
            "Number of records that members of a share group got, for the first time or again",
            partial(_delivered, shares.counts),
        ),
        family(
            "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total",
            "Number of records that a share group has lost locks of, because their time was over",
            lambda counts: counts.lock_timeouts,
        ),
        family(
            "kafka_server_sharegroupmetrics_deadletterqueue_recordcount_total",
            "Number of dead letters that were written for a share group",
            lambda counts: counts.dead_letters,
        ),
        family(
            "kafka_server_sharegroupmetrics_deadletterqueue_failedproducerequests_total",
            "Number of failed tries to write dead letters of a share group; they are written later",
            lambda counts: counts.dead_letters_failed,
        ),
        family(
            "barnabas_share_records_without_dead_letter_total",
            "Number of records of a share group that were archived without a dead letter, as its setting is broken",
            lambda counts: counts.dead_letters_impossible,
        ),
    ]


def _acknowledged(counts: Mapping[str, DeliveryCounts]) -> Iterator[Sample]:
    for group_id, each in list(counts.items()):
        for name, number in zip(_TYPES, each.acknowledgements, strict=True):
            yield Sample(labels(group=group_id, ack_type=name), number)


def _delivered(counts: Mapping[str, DeliveryCounts]) -> Iterator[Sample]:
    for group_id, each in list(counts.items()):
        yield Sample(labels(group=group_id, delivery="first"), each.first_deliveries)
        yield Sample(labels(group=group_id, delivery="again"), each.later_deliveries)


def _of_partitions(environment: HandlerEnvironment) -> list[Family]:
    def family(name: str, help_text: str, value: Callable[[LedPartition], float]) -> Family:
        def samples() -> Iterator[Sample]:
            for led in list(environment.shares.led()):
                topic, partition = led.hosted.topic_partition
                yield Sample(labels(group=led.group_id, topic=topic, partition=partition), value(led))

        return Family(name, "gauge", help_text, samples)

    return [
        family(
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            "Number of records from the first one that is not final to the last one that was acquired",
            lambda led: len(led.records.window),
        ),
        family(
            "barnabas_share_acquired_records",
            "Number of records that members of a share group have locked",
            lambda led: led.records.count(RecordState.ACQUIRED),
        ),
        family(
            "barnabas_share_records_waiting_for_dead_letters",
            "Number of records of a share group whose dead letters are not written yet",
            lambda led: led.records.count(RecordState.ARCHIVING),
        ),
        family(
            "barnabas_share_oldest_unacknowledged_seconds",
            "Seconds since the first record that is not final was first acquired, or since this broker leads; 0 if "
            "there is none",
            lambda led: led.oldest_age_ms / 1000,
        ),
    ]
