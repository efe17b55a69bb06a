"""The metrics of ignored configs, of stray logs, and of documents that are unreadable or had to be restored.

For an offline log dir the number of stray logs is exported, but neither their size nor any other metric of disk space,
because these values were read before the disk failed.
"""

from collections.abc import Callable, Iterator

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.elections import is_lost
from barnabas_broker.metadata.controller.decisions.fencing import is_reassigned
from barnabas_broker.metadata.model import PartitionState
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.storage.log_dirs.log_dir_loader import StrayTotal


def metadata_families(environment: HandlerEnvironment) -> list[Family]:
    """Return the metric families of the metadata; in a healthy cluster, all their values are 0."""
    return [
        Family(
            "barnabas_ignored_configs",
            "gauge",
            "1 for each stored setting that this broker ignores; the broker's log has the reasons",
            lambda: [
                Sample(labels(resource=each.resource, name=each.name, setting=each.setting), 1)
                for each in environment.ignored_configs()
            ],
        ),
        _stray_logs(
            environment,
            "barnabas_stray_logs",
            "Number of logs that are not served because their topic is not in the metadata",
            lambda total: total.logs,
            are_told_offline=True,
        ),
        _stray_logs(
            environment,
            "barnabas_stray_log_bytes",
            "Bytes of stray logs in online log dirs; stray logs are not served because the metadata lacks their topic",
            lambda total: total.size_bytes,
        ),
        single(
            "barnabas_unreadable_documents",
            "gauge",
            "Number of documents in the metadata store that cannot be read; the broker's log names them",
            len(environment.image.unreadable),
        ),
        single(
            "barnabas_restored_documents_total",
            "counter",
            "Number of documents that this broker wrote to the metadata store again, because the store had lost "
            "them or had older versions",
            environment.image.restored_total,
        ),
    ]


def _stray_logs(
    environment: HandlerEnvironment,
    name: str,
    help_text: str,
    value: Callable[[StrayTotal], int],
    *,
    are_told_offline: bool = False,
) -> Family:
    def samples() -> list[Sample]:
        totals = environment.logs.strays.totals()
        none = StrayTotal(0, 0)
        return [
            Sample(labels(log_dir=each.path), value(totals.get(each.path, none)))
            for each in environment.logs.log_dirs
            if each.is_online or (are_told_offline and each.path in totals)
        ]

    return Family(name, "gauge", help_text, samples)


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
