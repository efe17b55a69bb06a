"""The number of writes of topics when a broker restarts."""

from collections import Counter

import pytest
from metadata_cluster import ClusterOfNodes, Node, a_topic, led

from barnabas_broker.metadata.documents import topic_key
from barnabas_broker.metadata.store.metadata_store import VersionConflict, Write

TOPICS = [f"t{number}" for number in range(20)]


def count_writes(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return a counter of the writes of topics by outcome."""
    counted: Counter[str] = Counter()
    for node in nodes:
        write = node.store.write

        async def counting(writes: list[Write], write: object = write) -> list[int | VersionConflict]:
            results: list[int | VersionConflict] = await write(writes)  # type: ignore[operator]
            for each, result in zip(writes, results, strict=True):
                if each.key.startswith(topic_key("")):
                    counted["written" if isinstance(result, int) else "in vain"] += 1
            return results

        monkeypatch.setattr(node.store, "write", counting)
    return counted


async def test_a_controlled_shutdown_writes_each_topic_once_without_version_conflicts(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster.start(0, 1, 2)
    await cluster.topics(*(a_topic(name, led(2, 0, 1), led(0, 1, 2)) for name in TOPICS))
    counted = count_writes(nodes, monkeypatch)
    assert await nodes[2].writer.hand_over(2) == []
    await nodes[0].until(
        lambda: all(2 not in state.isr for name in TOPICS for state in nodes[0].image.topics[name].partitions)
    )
    assert counted == {"written": len(TOPICS)}


async def test_a_returning_broker_writes_no_topic_that_its_shutdown_already_wrote(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster.start(0, 1, 2)
    outside = a_topic("outside", led(0, 1, 2, isr=[0, 1]))
    await cluster.topics(outside, *(a_topic(name, led(2, 0, 1)) for name in TOPICS))
    await nodes[2].writer.hand_over(2)
    await nodes[2].membership.leave()
    await cluster.kill(2)
    counted = count_writes(nodes[:2], monkeypatch)
    before = nodes[0].state("t0")
    again = await cluster.node(2)
    await again.start()
    assert counted == {"written": 1}, "only the topic that was not written when the broker shut down"
    assert again.state("outside").partition_epoch == outside.partitions[0].partition_epoch + 1
    assert again.state("t0") == before


async def test_each_topic_is_written_once_after_a_crash(
    cluster: ClusterOfNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = await cluster.start(0, 1, 2)
    await cluster.topics(*(a_topic(name, led(2, 0, 1)) for name in TOPICS))
    counted = count_writes(nodes[:2], monkeypatch)
    await cluster.kill(2)
    again = await cluster.node(2)
    await again.start()
    assert all(again.state(name).isr == (0, 1) for name in TOPICS)
    assert counted == {"written": len(TOPICS)}
