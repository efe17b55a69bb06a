"""Read the groups and offsets of a cluster once, with a bounded number of requests to each broker."""

from typing import NamedTuple

from kafka.protocol.metadata import MetadataRequest

from barnabas_kafka.asking import Asking
from barnabas_lag.evaluation.filters import Filter
from barnabas_lag.evaluation.readings import Readings
from barnabas_lag.kafka.cluster_metadata import coordinators, partitions_of
from barnabas_lag.kafka.groups import listed_groups, read_groups
from barnabas_lag.kafka.offsets import with_ends, with_stable_offsets
from barnabas_lag.kafka.offsets_retention import OffsetsRetention


class Filters(NamedTuple):
    """The filters of the topics and groups that the exporter reads."""

    topics: Filter
    groups: Filter


def read_cluster(asking: Asking, filters: Filters, retention: OffsetsRetention) -> Readings:
    """Read committed offsets, then stable offsets, then log ends, so that no committed offset is ahead of its log end.

    Raises ClusterUnreachable if no broker answers.
    """
    metadata = asking.ask_any(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    broker_ids = [each.node_id for each in metadata.brokers]
    asking.meet(broker_ids)
    partitions = partitions_of(metadata, filters.topics)
    listed, is_complete = listed_groups(asking, broker_ids, filters.groups)
    groups = read_groups(asking, listed, partitions)
    return Readings(
        brokers=len(broker_ids),
        partitions=with_ends(asking, with_stable_offsets(asking, partitions)),
        groups=groups,
        silent=frozenset(listed.keys() - groups.keys()),
        is_complete=is_complete and set(coordinators(metadata)) <= set(broker_ids),
        offsets_retention_s=retention.seconds(asking, broker_ids),
    )
