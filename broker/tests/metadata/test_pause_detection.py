"""Who stood still for half a session answers nothing before it has looked at the metadata."""

import asyncio
from collections.abc import Coroutine
from typing import cast

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.pause_detection import PauseDetection
from barnabas_broker.metadata.store.metadata_store import Listing, MetadataStore, StoreUnavailable
from harness.manual_timers import ManualTimers

LIMIT_MS = 1000


class World:
    """Time that the test moves, and a store that answers when the test lets it."""

    def __init__(self) -> None:
        self.timers = ManualTimers()
        self.clock = self.timers.clock
        self.is_away = False
        self.image = MetadataImage()
        self.image.revision = 7
        self.tasks: list[asyncio.Task[None]] = []
        self.pause_detection = PauseDetection(
            cast(MetadataStore, self),
            self.image,
            LIMIT_MS,
            self.clock,
            self.timers,
            lambda _: asyncio.sleep(0),
            self.spawn,
        )
        self.pause_detection.start()

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def latest_revision(self) -> int:
        if self.is_away:
            raise StoreUnavailable("away")
        return 8


def test_who_is_never_late_is_awake_without_asking_anybody() -> None:
    world = World()
    world.is_away = True
    for _ in range(100):
        world.timers.pass_time(0.3)
        world.clock.ahead_ms += 10 * LIMIT_MS  # The wall's clock may be set at any time.
        assert world.pause_detection.is_awake()
    assert world.tasks == []


async def test_who_stood_still_answers_once_its_metadata_are_those_of_now() -> None:
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


async def test_while_the_store_is_away_it_goes_on_asking() -> None:
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
