"""Checkpoints are made in threads, while logs come and go."""

import gc

from barnabas_broker.storage.log_dirs.checkpointed_offsets import offset_of_each
from barnabas_core.topic_partition import TopicPartition


def test_a_log_that_comes_during_a_collection_of_garbage_does_no_harm() -> None:
    """The collector calls what measures it; then the loop has its turn."""
    logs = {TopicPartition("t", number): number for number in range(50)}

    def comes(phase: str, _: dict[str, int]) -> None:
        logs[TopicPartition("t", len(logs))] = 0

    threshold = gc.get_threshold()
    gc.callbacks.append(comes)
    gc.set_threshold(1)
    try:
        found = offset_of_each(logs, lambda number: number)  # type: ignore[arg-type, return-value]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(comes)
    assert found[TopicPartition("t", 49)] == 49
