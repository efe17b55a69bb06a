"""The metrics of ignored configs, of stray logs, and of documents that are unreadable or had to be restored.

For an offline log dir the number of stray logs is exported, but neither their size nor any other metric of disk space,
because these values were read before the disk failed.
"""

from collections.abc import Callable

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single
from barnabas_broker.storage.log_dirs.stray_logs import StrayTotal


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
