"""The metrics of the controller, of live brokers and of leaders, under Kafka's names, from this broker's metadata."""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import is_lost
from barnabas_broker.metadata.controller.decisions.reassignments import is_reassigned
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.server.metrics.exposition import Family, Sample


def controller_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families; values that are not about this broker are the same on all brokers."""
    image, prefix = environment.image, "kafka_controller_kafkacontroller_"
    return [
        _gauge(
            f"{prefix}activecontrollercount",
            "1 if this broker is the controller, else 0",
            lambda: int(image.controller_id == environment.broker_id),
        ),
        _gauge(f"{prefix}activebrokercount", "Number of live brokers", lambda: len(image.live)),
        _gauge(f"{prefix}fencedbrokercount", "Number of fenced brokers", lambda: len(image.brokers) - len(image.live)),
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
        Family(
            "kafka_controller_controllerstats_leaderelections_total",
            "counter",
            "Number of leaders that this broker has elected",
            lambda: [Sample("", environment.metadata_writer.partitions.elections_total)],
        ),
    ]


def _gauge(name: str, help_text: str, value: Callable[[], int]) -> Family:
    return Family(name, "gauge", help_text, lambda: [Sample("", value())])


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
