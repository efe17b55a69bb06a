"""An event loop in a separate thread, for client libraries that need one."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from harness.deadline import PATIENCE_S


class EventLoop:
    """Runs coroutines for callers that have no loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Return the coroutine's result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
