"""A supervised task hangs if it makes no progress, but not if it is idle or has much to do."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from barnabas_broker.app.supervision import CHECKS_MIN, PeriodicTask, PeriodicTasks, Supervisor
from barnabas_broker.metadata.controller.deletions import Restorations, Transitions
from barnabas_broker.metadata.documents import CLUSTER_KEY, encode
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.model import ClusterDocument
from barnabas_broker.metadata.store.metadata_store import Change, Changes
from barnabas_core.loop_turns import Steps

LOOKS = 5 * CHECKS_MIN


async def hang() -> None:
    await asyncio.Event().wait()


def reason_to_end(start: Callable[[Supervisor], object]) -> str | None:
    """Return the failure that the supervisor finds in many checks, each after a turn of the loop."""

    async def story() -> str | None:
        supervisor, looks = Supervisor(lambda _: None), 0

        async def sleep(_: float) -> None:
            nonlocal looks
            looks += 1
            await asyncio.sleep(0)

        start(supervisor)
        supervisor.supervise("watchdog", supervisor.watch(1.0, sleep))
        while looks < LOOKS:
            await asyncio.sleep(0)
        reason = supervisor.failure
        await supervisor.cancel()
        return reason

    return asyncio.run(story())


def reason_of_task(periodic_task: PeriodicTask) -> str | None:
    return reason_to_end(
        lambda supervisor: PeriodicTasks(partial(supervisor.supervise, hang_s=1)).start([periodic_task])
    )


def test_a_periodic_task_without_progress_hangs() -> None:
    assert reason_of_task(PeriodicTask("flushes", 0, hang)) == "the task flushes hangs"


def test_a_periodic_task_that_is_not_due_does_not_hang() -> None:
    assert reason_of_task(PeriodicTask("retention", 3600, hang)) is None


def test_a_periodic_task_of_many_steps_does_not_hang() -> None:
    async def many_steps() -> None:
        while True:
            await asyncio.sleep(0)

    assert reason_of_task(PeriodicTask("flushes", 0, many_steps)) is None


def test_a_periodic_task_that_allows_a_long_step_does_not_hang() -> None:
    assert reason_of_task(PeriodicTask("disks", 0, hang, lasts=lambda: True)) is None


class SilentStore:
    """A store that never responds."""

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        return lambda *_: hang()


@pytest.mark.parametrize(("is_lost", "reason"), [(True, "the task restorations hangs"), (False, None)])
def test_restorations_hang_only_while_a_document_must_be_written(is_lost: bool, reason: str | None) -> None:
    image = MetadataImage()
    image.apply_changes(Changes(1, [Change(1, CLUSTER_KEY, encode(ClusterDocument("the-id")))]))
    if is_lost:
        image.apply_changes(Changes(2, [Change(2, CLUSTER_KEY, None)]))

    def begin(supervisor: Supervisor) -> None:
        transitions = Transitions(SilentStore(), image)  # type: ignore[arg-type]
        restorations = Restorations(image, transitions, lambda: True, asyncio.sleep)
        supervisor.supervise("restorations", restorations.run(), restorations.progress, 1)

    assert reason_to_end(begin) == reason


async def test_counting_steps_keeps_the_result_the_error_and_the_cancellation_of_work() -> None:
    steps, heard = Steps(), list[str]()

    async def work() -> str:
        await asyncio.sleep(0)
        return "done"

    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError("no space left")

    async def clean_up() -> None:
        try:
            await hang()
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    assert await steps.count(work()) == "done"
    with pytest.raises(OSError, match="no space left"):
        await steps.count(fail())
    task = asyncio.ensure_future(steps.count(clean_up()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert heard == ["cancelled"]
