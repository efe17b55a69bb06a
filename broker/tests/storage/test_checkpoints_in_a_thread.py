"""Checkpoints are made in threads, while logs are created and removed."""

import gc

from barnabas_broker.storage.log_dirs.log_dir import offset_of_each
from barnabas_core.topic_partition import TopicPartition


def test_a_log_created_during_a_garbage_collection_does_not_break_a_checkpoint() -> None:
    """The garbage collector calls Python code, which lets the loop's thread run."""
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
