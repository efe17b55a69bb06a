"""A broker can be unregistered unless it is alive, is starting or has replicas."""

import pytest
from metadata_cluster import ClusterOfNodes, Node, a_topic, led

from barnabas_broker.metadata.membership.membership import BROKER_LEASES
from barnabas_core.errors import ApiError, ErrorCode


async def without_broker_2(cluster: ClusterOfNodes) -> Node:
    """Start two brokers, kill broker 2, and return broker 1 once it knows that broker 2 is fenced."""
    one, _ = await cluster.start(1, 2)
    await cluster.kill(2)
    one.controller.suspect(2)
    await one.until(lambda: one.image.brokers[2].fenced)
    return one


async def refusal(node: Node, broker_id: int) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await node.writer.unregister_broker(broker_id)
    return caught.value.code


async def test_a_fenced_broker_can_be_unregistered_and_may_register_again(cluster: ClusterOfNodes) -> None:
    one = await without_broker_2(cluster)
    epoch = one.image.brokers[2].broker_epoch
    await one.writer.unregister_broker(2)
    assert list(one.image.brokers) == [1]
    assert await refusal(one, 2) is ErrorCode.BROKER_ID_NOT_REGISTERED
    (again,) = await cluster.start(2)
    await one.until(lambda: one.image.live == {1, 2})
    assert again.epoch > epoch


async def test_a_live_broker_cannot_be_unregistered(cluster: ClusterOfNodes) -> None:
    one, _ = await cluster.start(1, 2)
    assert await refusal(one, 2) is ErrorCode.INVALID_REQUEST
    assert await refusal(one, 3) is ErrorCode.BROKER_ID_NOT_REGISTERED
    await one.until(lambda: one.image.live == {1, 2})  # Broker 2 may have noticed first that it is unfenced.


async def test_a_broker_with_replicas_cannot_be_unregistered(cluster: ClusterOfNodes) -> None:
    one = await without_broker_2(cluster)
    await cluster.topics(a_topic("flights", led(1), led(1, 2)))
    assert await refusal(one, 2) is ErrorCode.INVALID_REQUEST
    await cluster.topics(a_topic("flights", led(1), led(1)))
    await one.writer.unregister_broker(2)
    assert list(one.image.brokers) == [1]


async def test_a_starting_broker_cannot_be_unregistered(cluster: ClusterOfNodes) -> None:
    one = await without_broker_2(cluster)
    other = await cluster.node(2)
    lease = await other.store.acquire_lease(f"{BROKER_LEASES}2", "the next incarnation of broker 2", 3000)
    assert lease is not None
    assert await refusal(one, 2) is ErrorCode.INVALID_REQUEST
    await other.store.release_lease(lease)
    await one.writer.unregister_broker(2)
