"""The throttle times of each user and client id that has a quota."""

from collections.abc import Mapping
from typing import Final

from barnabas_broker.handlers.client_quotas import ClientQuotas
from barnabas_broker.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from barnabas_broker.server.metrics.exposition import Family, Sample, labels

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
