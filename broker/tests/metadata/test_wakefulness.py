"""Who stood still for half a session answers nothing before it has looked at the metadata."""

import asyncio
from collections.abc import Callable, Coroutine

from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.membership.wakefulness import Wakefulness
from barnabas_broker.metadata.store.metadata_store import Listing, StoreUnavailable

LIMIT_MS = 1000


class World:
    """A clock that the test moves, and a store that answers when the test lets it."""

    def __init__(self) -> None:
        self.ms = 5_000
        self.is_away = False
        self.image = MetadataImage()
        self.image.revision = 7
        self.due: list[tuple[int, Callable[[], object]]] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.wakefulness = Wakefulness(
            self,
            self.image,
            LIMIT_MS,
            self,
            self,
            lambda _: asyncio.sleep(0),
            self.spawn,
        )
        self.wakefulness.start()

    def now_ms(self) -> int:
        raise AssertionError("that clock may be set while the process stands still")

    def monotonic_s(self) -> float:
        return self.ms / 1000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> None:
        self.due.append((self.ms + int(delay_s * 1000), callback))

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def latest_revision(self) -> int:
        if self.is_away:
            raise StoreUnavailable("away")
        return 8

    def pass_time(self, seconds: float) -> None:
        """With every timer on time."""
        end_ms = self.ms + int(seconds * 1000)
        while self.due and min(self.due)[0] <= end_ms:
            self.due.sort(key=lambda each: each[0])
            self.ms, callback = self.due.pop(0)
            callback()
        self.ms = end_ms


def test_who_is_never_late_is_awake_without_asking_anybody() -> None:
    world = World()
    world.is_away = True
    for _ in range(100):
        world.pass_time(0.3)
        assert world.wakefulness.is_awake()
    assert world.tasks == []


def test_who_stood_still_answers_once_its_metadata_are_those_of_now() -> None:
    async def scenario() -> None:
        world = World()
        world.ms += LIMIT_MS + 1
        assert not world.wakefulness.is_awake()
        assert not world.wakefulness.is_awake()
        await asyncio.sleep(0)
        assert not world.wakefulness.is_awake(), "the image has not seen revision 8"
        world.image.apply_listing(Listing(8, []))
        await world.tasks[0]
        assert world.wakefulness.is_awake()
        assert len(world.tasks) == 1

    asyncio.run(scenario())


def test_while_the_store_is_away_it_goes_on_asking() -> None:
    async def scenario() -> None:
        world = World()
        world.image.revision = 8
        world.is_away = True
        world.ms += LIMIT_MS + 1
        assert not world.wakefulness.is_awake()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not world.wakefulness.is_awake()
        world.is_away = False
        await world.tasks[0]
        assert world.wakefulness.is_awake()

    asyncio.run(scenario())
