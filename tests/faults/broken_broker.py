"""A broker with one task that fails or hangs: `python broken_broker.py FAULT server.properties`.

The fault begins once the file `broken` is beside the settings. The supervisor's deadlines are short here.
"""

import asyncio
import inspect
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from barnabas_broker.app import broker, main, node
from barnabas_broker.app.broker import Recovery
from barnabas_broker.app.loop_turns import PauseDetection
from barnabas_broker.app.wiring import open_store
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.metadata.store.metadata_store import Changes
from barnabas_broker.storage.cleaner.manager import LogCleaner
from barnabas_broker.storage.errors import StorageError
from barnabas_broker.storage.log_dirs.log_dir import LogDir
from barnabas_broker.storage.log_dirs.log_dir_loader import LoadProgress
from barnabas_core.loop_turns import timed

HANG_S, PROBE_S = 4.0, 0.1
"""Longer than a commit or a sync takes on a busy machine; otherwise another task would be the reason."""
DISK_HANG_S = 6.0
LONG_TURN_S = 1.2


class Broken(Exception):
    """The planted error."""


async def hang() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise Broken("by the test")


class BrokenStore:
    """A store with one method that fails or hangs."""

    def __init__(self, store: Any, method: str, fault: Callable[[], Any], is_broken: Callable[[], bool]) -> None:
        self._store = store
        self._method = method
        self._fault = fault
        self._is_broken = is_broken

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        if name != self._method and not (self._method == "all" and inspect.iscoroutinefunction(real)):
            return real

        async def broken(*arguments: Any) -> Any:
            if self._is_broken():
                await self._fault()
            return await real(*arguments)

        return broken

    async def watch(self, from_revision: int) -> AsyncIterator[Any]:
        async for changes in self._store.watch(from_revision):
            if self._method == "watch" and self._is_broken():
                await self._fault()
            yield changes


def break_image(is_broken: Callable[[], bool]) -> None:
    apply = MetadataImage.apply_changes

    def broken(self: MetadataImage, changes: Changes) -> None:
        if is_broken():
            self.subscribe(lambda _: 1 / 0)
        apply(self, changes)

    MetadataImage.apply_changes = broken  # type: ignore[method-assign]


def break_timer(is_broken: Callable[[], bool]) -> None:
    tick = PauseDetection._tick

    def broken(self: PauseDetection) -> None:
        if is_broken():
            raise Broken("by the test")
        tick(self)

    PauseDetection._tick = broken  # type: ignore[method-assign]


def break_turn(is_broken: Callable[[], bool]) -> None:
    """Make the metadata listener's work too long."""
    apply = MetadataImage.apply_changes

    def broken(self: MetadataImage, changes: Changes) -> None:
        end_s = time.thread_time() + LONG_TURN_S * is_broken()
        while time.thread_time() < end_s:
            pass
        apply(self, changes)

    MetadataImage.apply_changes = timed("metadata image")(broken)  # type: ignore[method-assign]


def break_recovery(is_broken: Callable[[], bool]) -> None:
    """Make the recovery hang in the first log."""
    advance = Recovery.advance

    def broken(self: Recovery, progress: LoadProgress) -> None:
        advance(self, progress)
        while is_broken():
            time.sleep(0.01)

    Recovery.advance = broken  # type: ignore[method-assign]


def break_disk(is_broken: Callable[[], bool]) -> None:
    """Make the disk hang."""
    node.DISK_HANG_S = DISK_HANG_S  # type: ignore[misc]
    problems = LogDir.problems

    def broken(self: LogDir) -> list[StorageError]:
        while is_broken():
            time.sleep(0.01)
        return problems(self)

    LogDir.problems = broken  # type: ignore[method-assign]


def break_cleaner(is_broken: Callable[[], bool], fault: Callable[[], Any]) -> None:
    node.DISK_HANG_S = DISK_HANG_S  # type: ignore[misc]
    clean_all = LogCleaner._clean_all

    async def broken(self: LogCleaner) -> None:
        if is_broken():
            await fault()
        await clean_all(self)

    LogCleaner._clean_all = broken  # type: ignore[method-assign]


STORE_FAULTS = {
    "the feed fails": ("watch", fail),
    "the feed hangs": ("watch", hang),
    "the leases fail": ("renew_lease", fail),
    "the leases hang": ("renew_lease", hang),
    "the controller fails": ("followed_leases", fail),
    "the controller hangs": ("followed_leases", hang),
    "the store hangs": ("all", hang),
}


def break_it(fault: str, is_broken: Callable[[], bool]) -> None:
    node.HANG_S, node.PROBE_S = HANG_S, PROBE_S  # type: ignore[misc]
    if fault == "a listener fails":
        break_image(is_broken)
    elif fault == "a timer fails":
        break_timer(is_broken)
    elif fault == "a disk hangs":
        break_disk(is_broken)
    elif fault in ("the cleaner fails", "the cleaner hangs"):
        break_cleaner(is_broken, fail if fault == "the cleaner fails" else hang)
    elif fault == "a turn is long":
        break_turn(is_broken)
    elif fault == "the recovery hangs":
        break_recovery(is_broken)
    else:

        async def open_broken(*arguments: Any) -> Any:
            return BrokenStore(await open_store(*arguments), *STORE_FAULTS[fault], is_broken)

        broker.open_store = open_broken  # type: ignore[attr-defined, assignment]


if __name__ == "__main__":
    break_it(sys.argv[1], (Path(sys.argv[2]).parent / "broken").exists)
    sys.exit(main.main(sys.argv[2:]))
