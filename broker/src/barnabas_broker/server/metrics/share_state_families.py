"""The metrics of the share coordinator: the partitions of `__share_group_state` that this broker coordinates."""

from barnabas_broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas_broker.server.metrics.exposition import Family, Sample, labels, single


def share_state_families(coordinator: ShareCoordinator) -> list[Family]:
    """Return the metric families of the share coordinator."""
    runtime = coordinator.runtime
    return [
        Family(
            "barnabas_share_coordinator_partitions",
            "gauge",
            "Number of partitions of __share_group_state that this broker coordinates, by state; "
            "no records of the share groups in failed partitions can be acknowledged",
            lambda: [Sample(labels(state=state), count) for state, count in runtime.partition_counts().items()],
        ),
        single(
            "barnabas_share_coordinator_records_left_out",
            "gauge",
            "Number of records of __share_group_state that could not be decoded; the broker's log "
            "names the first of them",
            runtime.left_out_count(),
        ),
        single(
            "kafka_coordinator_share_writes_total",
            "counter",
            "Number of changes of share group states that this broker has written",
            coordinator.counts.writes,
        ),
        Family(
            "kafka_coordinator_share_last_pruned_offset",
            "gauge",
            "Offset up to which this broker has deleted the records of a partition of __share_group_state; 0 if none",
            lambda: [Sample(labels(partition=shard.partition), shard.pruned_to) for shard in runtime.loaded()],
        ),
    ]
