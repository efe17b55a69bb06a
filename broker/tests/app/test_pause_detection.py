"""A broker that paused for half a session handles no requests before it has the current metadata."""

import asyncio
from collections.abc import Coroutine
from typing import cast

from barnabas_broker.app.loop_turns import PauseDetection
from barnabas_broker.metadata.image.image_feed import catch_up
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import Listing, MetadataStore, StoreUnavailable
from harness.manual_timers import ManualTimers

LIMIT_MS = 1000


class World:
    """Time that the test controls, and a store that is unavailable while `is_away`."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.is_away = False
        self.image = MetadataImage()
        self.image.revision = 7
        self.tasks: list[asyncio.Task[None]] = []
        self.pause_detection = PauseDetection(
            lambda: catch_up(self.image, cast(MetadataStore, self), lambda _: asyncio.sleep(0)),
            LIMIT_MS,
            self.clock,
            self.timers,
            self.spawn,
        )
        self.pause_detection.start()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def latest_revision(self) -> int:
        if self.is_away:
            raise StoreUnavailable("away")
        return 8


def test_a_broker_without_pauses_is_awake_without_requests_to_the_store() -> None:
    world = World()
    world.is_away = True
    for _ in range(100):
        world.timers.pass_time(0.3)
        world.clock.ahead_ms += 10 * LIMIT_MS  # The wall clock may be changed at any time.
        assert world.pause_detection.is_awake()
    assert world.tasks == []


async def test_a_broker_that_paused_is_awake_once_its_metadata_is_current() -> None:
    world = World()
    world.clock.passed_ms += LIMIT_MS + 1
    assert not world.pause_detection.is_awake()
    assert not world.pause_detection.is_awake()
    await asyncio.sleep(0)
    assert not world.pause_detection.is_awake(), "the image has not seen revision 8"
    world.image.apply_listing(Listing(8, []))
    await world.tasks[0]
    assert world.pause_detection.is_awake()
    assert len(world.tasks) == 1


async def test_a_broker_that_paused_retries_while_the_store_is_unavailable() -> None:
    world = World()
    world.image.revision = 8
    world.is_away = True
    world.clock.passed_ms += LIMIT_MS + 1
    assert not world.pause_detection.is_awake()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not world.pause_detection.is_awake()
    world.is_away = False
    await world.tasks[0]
    assert world.pause_detection.is_awake()
