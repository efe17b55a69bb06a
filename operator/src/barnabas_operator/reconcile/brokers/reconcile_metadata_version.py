"""Raises the metadata version after a roll, one level at a time."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from barnabas_operator.kafka.cluster_admin import ClusterAdmin
from barnabas_operator.planning.brokers.broker_steps import BrokerView
from barnabas_operator.planning.brokers.cluster_checks import (
    RaiseMetadataVersion,
    may_raise,
    metadata_version_of,
    next_version,
    refuse_lower,
)
from barnabas_operator.planning.cluster_state import ClusterState
from barnabas_operator.planning.refusal import KAFKA_ERROR, Refusal
from barnabas_operator.resources.cluster import Cluster

log = logging.getLogger(__name__)


class VersionOutcome(NamedTuple):
    """The outcome: `done` is the step that was carried out; `refusal` says why the version is not as declared.

    At most one field is set. Both are None if the version is as declared, or the brokers are not ready for a step.
    """

    done: RaiseMetadataVersion | None = None
    refusal: Refusal | None = None


def reconcile_metadata_version(
    admin: ClusterAdmin, cluster: Cluster, brokers: Sequence[BrokerView], state: ClusterState
) -> VersionOutcome:
    """Raise the metadata version by one step, if all brokers are ready and support a higher version.

    Raises ClusterUnreachable if no broker answers.
    """
    lower = refuse_lower(cluster, metadata_version_of(state))
    if lower is not None or not may_raise(cluster, brokers, state):
        return VersionOutcome(refusal=lower)
    step = next_version(cluster, state, admin.supported_metadata_versions(sorted(state.racks)))
    if not isinstance(step, RaiseMetadataVersion):
        return VersionOutcome(refusal=step)
    refused = admin.raise_metadata_version(step.after)
    if refused is not None:
        return VersionOutcome(refusal=Refusal(KAFKA_ERROR, f"could not {step}: {refused}"))
    log.info("%s/%s: %s", cluster.metadata.namespace, cluster.metadata.name, step)
    return VersionOutcome(done=step)
