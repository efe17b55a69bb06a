"""Brokers that do not answer are asked less and less often, and block no other threads."""

import asyncio
import threading

from barnabas_operator.reconcile.reconcile_parts import AT_ONCE_MAX, BACKOFF_S_MAX, BrokerBackoff, blocking
from harness.deadline import PATIENCE_S
from harness.manual_clock import ManualClock
from harness.worker_world import World, resource


def test_silent_brokers_are_asked_after_growing_pauses_until_one_answers() -> None:
    clock = ManualClock()
    patience = BrokerBackoff(0.5, clock.monotonic_s)
    pauses = []
    for _ in range(5):
        patience.lose()
        began_s = clock.monotonic_s()
        while not patience.is_over:
            clock.pass_time(0.5)
        pauses.append(clock.monotonic_s() - began_s)
    assert pauses == [1.0, 2.0, 4.0, BACKOFF_S_MAX, BACKOFF_S_MAX]
    patience.lose()
    patience.renew()
    assert patience.is_over


async def test_the_maximum_number_of_hanging_calls_does_not_block_name_resolution() -> None:
    """asyncio resolves names in its own threads, of which a small machine has six."""
    ends = threading.Event()
    hanging = [asyncio.create_task(blocking(ends.wait, PATIENCE_S)) for _ in range(AT_ONCE_MAX + 1)]
    try:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.get_running_loop().getaddrinfo("127.0.0.1", 80)
        assert not any(each.done() for each in hanging)
    finally:
        ends.set()
    assert all(await asyncio.gather(*hanging))


async def test_a_cluster_that_does_not_answer_is_not_asked_again_until_a_pod_changes(here: World) -> None:
    here.api.put(resource("Cluster", "one"))
    here.brokers.count = 0
    await here.round()
    asked = here.brokers.looks
    await here.round()
    assert here.brokers.looks == asked
    here.worker.object_event({"kind": "Pod", "metadata": {"namespace": "air", "name": "one-broker-0"}}, is_gone=False)
    await here.next()
    assert here.brokers.looks == asked + 1
