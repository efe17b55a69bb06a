"""The metrics of the controller, of live brokers and of leaders, under Kafka's names, from this broker's metadata."""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import is_lost
from barnabas_broker.metadata.controller.decisions.fencing import is_reassigned
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.server.metrics.exposition import Family, Sample, single


def controller_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families; values that are not about this broker are the same on all brokers."""
    image, prefix = environment.image, "kafka_controller_kafkacontroller_"
    return [
        single(
            f"{prefix}activecontrollercount",
            "gauge",
            "1 if this broker is the controller, else 0",
            int(image.controller_id == environment.broker_id),
        ),
        single(f"{prefix}activebrokercount", "gauge", "Number of live brokers", len(image.live)),
        single(f"{prefix}fencedbrokercount", "gauge", "Number of fenced brokers", len(image.brokers) - len(image.live)),
        _partitions(
            environment,
            f"{prefix}offlinepartitionscount",
            "Number of partitions without a live leader",
            lambda state: state.leader not in image.live,
        ),
        _partitions(
            environment,
            "barnabas_partitions_lacking_records",
            "Number of partitions that are offline because every replica lacks committed records; `barnabas status` "
            "lists them",
            is_lost,
        ),
        _partitions(
            environment,
            f"{prefix}preferredreplicaimbalancecount",
            "Number of partitions whose leader is not the preferred replica",
            lambda state: state.leader != state.replicas[0],
        ),
        _partitions(
            environment,
            "kafka_server_replicamanager_reassigningpartitions",
            "Number of partitions that this broker leads and that are being reassigned",
            lambda state: state.leader == environment.broker_id and is_reassigned(state),
        ),
        single(
            "kafka_controller_controllerstats_leaderelections_total",
            "counter",
            "Number of leaders that this broker has elected",
            environment.metadata_writer.partitions.elections_total,
        ),
    ]


def _partitions(
    environment: HandlerEnvironment, name: str, help_text: str, counts: Callable[[PartitionState], bool]
) -> Family:
    def samples() -> Iterator[Sample | None]:
        total = 0
        for topic in list(environment.image.topics.values()):
            for state in topic.partitions:
                total += counts(state)
                yield None
        yield Sample("", total)

    return Family(name, "gauge", help_text, samples)
