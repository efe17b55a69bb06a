"""The requests that the authorizer denied, by operation and resource type."""

from barnabas_broker.security.acls.authorizer import Authorizer, Refusal
from barnabas_broker.server.metrics.exposition import Family, Sample, labels
from barnabas_core.acls import OPERATIONS


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
