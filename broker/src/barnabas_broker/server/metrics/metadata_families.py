"""The metrics of documents that vanished from the metadata store, and of stray logs.

The stray logs of an offline log dir are known, but not their bytes: these were read before the disk failed, and are no
part of the space in the other families.
"""

from collections.abc import Callable

from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.server.metrics.exposition import Family, Sample, labels
from barnabas_broker.storage.log_dirs.stray_logs import StrayTotal


def metadata_families(environment: HandlerEnvironment) -> list[Family]:
    """All should be 0 for ever."""
    return [
        _stray_logs(
            environment,
            "barnabas_stray_logs",
            "Logs that are not served because the metadata has no such topic; in offline log dirs those known before",
            lambda total: total.logs,
            are_told_offline=True,
        ),
        _stray_logs(
            environment,
            "barnabas_stray_log_bytes",
            "Bytes of the logs in online log dirs that are not served because the metadata has no such topic",
            lambda total: total.size_bytes,
        ),
        Family(
            "barnabas_unreadable_documents",
            "gauge",
            "Documents of the metadata store that cannot be read; the broker's log names them",
            lambda: [Sample("", len(environment.image.unreadable))],
        ),
        Family(
            "barnabas_restored_documents_total",
            "counter",
            "Documents that this broker wrote again because they were missing or out of date in the metadata store",
            lambda: [Sample("", environment.image.restored_total)],
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
