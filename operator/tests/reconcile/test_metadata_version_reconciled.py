"""The metadata level over an API server and brokers in memory: raised after a roll, reported, and retried."""

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from barnabas_core.conventions import METADATA_LEVEL_MAX
from barnabas_core.errors import ErrorCode
from barnabas_operator.kafka.step_requests import StepRefused
from barnabas_operator.planning.cluster_state import Trouble
from barnabas_operator.reconcile.worker_environment import OperatorSettings
from barnabas_operator.resources.kind import JsonObject
from harness.brokers_memory import BrokersMemory
from harness.worker_world import SETTINGS, World, of_broker, resource

RAISED = (
    "MetadataVersionRaised",
    "barnabas.metadata.version rose from 1 to 2; brokers that do not support the new level can no longer start",
)
WHY = "broker 1 supports levels 1 to 1."
REFUSED = StepRefused(ErrorCode.INVALID_UPDATE_VERSION, WHY)


def declared(**spec: Any) -> JsonObject:
    return resource("Cluster", "one", brokers={"replicas": 2}, **spec)


async def rolled(here: World, **spec: Any) -> None:
    """Run a round over two brokers that run as declared and support level 2."""
    here.brokers.count = 2
    here.brokers.highest = {0: 2, 1: 2}
    here.api.put(declared(**spec))
    await here.round()
    for number in range(2):
        here.api.put(of_broker(number))
    here.kubernetes_saw("new")


def level(here: World) -> object:
    """Return the level in the status of the Cluster."""
    return (here.api.found("Cluster", "one") or {}).get("status", {}).get("metadataVersion")


@asynccontextmanager
async def another_life(here: World, settings: OperatorSettings = SETTINGS) -> AsyncIterator[World]:
    """Yield the world of another operator over the same API server and brokers."""
    found = World(here.api, here.brokers, settings)
    running = asyncio.create_task(found.worker.run())
    try:
        yield found
    finally:
        running.cancel()


def raises(here: World) -> list[tuple[str, str]]:
    return [event for event in here.api.events() if event[0] == RAISED[0]]


async def test_the_level_is_raised_once_after_every_broker_runs_as_declared(here: World) -> None:
    await rolled(here)
    here.api.put({**of_broker(1), "status": {}})
    await here.round()
    assert (here.brokers.finalized, level(here)) == (1, 1), "a broker is not ready yet"
    here.api.put(of_broker(1))
    await here.round()
    assert here.brokers.finalized == 2
    assert await here.round()
    assert level(here) == 2
    await here.round()
    assert raises(here) == [RAISED]
    assert here.said("Cluster", "one")[0] == "True"


async def test_the_level_is_not_raised_during_a_roll_or_while_replicas_are_out_of_sync(here: World) -> None:
    await rolled(here, rolling={"pause": True})
    here.kubernetes_saw("newer")
    await here.round()
    assert here.said("Cluster", "one", "Rolling")[0] == "True"
    assert here.brokers.finalized == 1
    here.kubernetes_saw("new")
    here.brokers.troubles = (Trouble("flights", 0, (1,), (0,), offline=False),)
    await here.round()
    assert here.brokers.finalized == 1
    here.brokers.troubles = ()
    await here.round()
    assert here.brokers.finalized == 2


async def test_the_level_is_not_raised_before_kubernetes_has_observed_the_template(here: World) -> None:
    await rolled(here)
    made = here.api.found("StatefulSet", "one-broker") or {}
    here.api.put({**made, "status": {}})
    await here.round()
    assert here.brokers.finalized == 1


@pytest.mark.parametrize("old", [0, 1])
async def test_one_old_broker_keeps_the_level_low_and_the_cluster_stays_ready(old: int, here: World) -> None:
    await rolled(here)
    here.brokers.highest[old] = 1
    await here.round()
    assert (here.brokers.finalized, here.said("Cluster", "one")[0]) == (1, "True")
    here.brokers.highest[old] = 2
    await here.round()
    assert here.brokers.finalized == 2


async def test_a_pin_keeps_the_level_low_until_it_is_removed(here: World) -> None:
    await rolled(here, metadataVersion=1)
    await here.round()
    assert (here.brokers.finalized, level(here)) == (1, 1)
    assert here.said("Cluster", "one")[0] == "True"
    here.api.put(declared())
    await here.round()
    assert here.brokers.finalized == 2


@pytest.mark.parametrize(("pin", "allowed"), [(1, "2 or more"), (3, "2 to 2")])
async def test_an_impossible_pin_is_reported_and_stops_nothing_else(pin: int, allowed: str, here: World) -> None:
    here.brokers.finalized = 2
    await rolled(here, metadataVersion=pin)
    here.api.put(resource("Topic", "flights", cluster="one", partitions=1))
    await here.round()
    status, reason, message = here.said("Cluster", "one")
    assert (status, reason) == ("False", "NotSupported")
    assert message.startswith(f"spec.metadataVersion is {pin}; allowed: {allowed}")
    assert (here.brokers.finalized, level(here)) == (2, 2)
    assert "flights" in here.brokers.topics


async def test_a_refused_raise_of_the_level_is_reported_and_retried(here: World) -> None:
    await rolled(here)
    here.brokers.refusal = REFUSED
    await here.round()
    why = f"could not raise barnabas.metadata.version from 1 to 2: INVALID_UPDATE_VERSION (95): {WHY}"
    assert here.said("Cluster", "one") == ("False", "KafkaError", why)
    assert level(here) == 1
    here.brokers.refusal = None
    await here.round()
    await here.round()
    assert (here.said("Cluster", "one")[0], level(here), raises(here)) == ("True", 2, [RAISED])


async def test_an_operator_reports_the_level_that_a_dead_operator_has_raised(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, is_over = BrokersMemory.raise_metadata_version, threading.Event()

    loop, is_raised = asyncio.get_running_loop(), asyncio.Event()

    def die(brokers: BrokersMemory, wanted: int) -> StepRefused | None:
        """Raise the level and hang, so that this operator does nothing more."""
        answer = really(brokers, wanted)
        loop.call_soon_threadsafe(is_raised.set)
        is_over.wait()
        return answer

    try:
        await rolled(here, metadataVersion=1)
        await here.round()
        found = here.api.found("Cluster", "one") or {}
        here.api.put({**found, "spec": declared()["spec"]})
        monkeypatch.setattr(BrokersMemory, "raise_metadata_version", die)
        last = asyncio.create_task(here.round())
        await is_raised.wait()
        assert (here.brokers.finalized, level(here), raises(here)) == (2, 1, [])
        monkeypatch.setattr(BrokersMemory, "raise_metadata_version", really)
        async with another_life(here) as after:
            await after.round()
            assert (here.brokers.finalized, level(here), raises(here)) == (2, 2, [RAISED])
        last.cancel()
    finally:
        is_over.set()


@pytest.mark.parametrize(("named", "kept"), [("", SETTINGS.broker_image), ("somebody/broker:1", "somebody/broker:1")])
async def test_brokers_keep_their_image_if_that_of_an_older_release_cannot_read_the_metadata(
    named: str, kept: str, here: World
) -> None:
    """The operator does not check an image that the Cluster names."""
    here.brokers.finalized = METADATA_LEVEL_MAX + 1
    await rolled(here)
    await here.round()
    brokers = {"replicas": 2} | ({"image": named} if named else {})
    here.api.put(resource("Cluster", "one", brokers=brokers))
    async with another_life(here, dataclasses.replace(SETTINGS, broker_image="older/broker:0")) as after:
        await after.round()
        template = (here.api.found("StatefulSet", "one-broker") or {})["spec"]["template"]
        assert template["spec"]["containers"][0]["image"] == kept
        refused = after.said("Cluster", "one")[1:]
        assert (refused[1].startswith("brokerImage is older/broker:0, whose brokers support")) == (not named)
