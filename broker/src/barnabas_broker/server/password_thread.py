"""The thread that hashes passwords, one at a time, so that the loop serves other clients meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from barnabas_broker.server.sasl_listener import Conclusion


class PasswordThread:
    """A thread that starts when the first password is hashed; hashing releases the GIL, so the event loop runs on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "passwords")

    def __call__(self, compute: Callable[[], bytes], conclude: Conclusion, is_gone: Callable[[], bool]) -> None:
        """Run `compute` in the thread, then `conclude` on the event loop; run neither if the client is gone."""

        def ended(done: Future[bytes]) -> None:
            if not done.cancelled() and not is_gone():
                with suppress(RuntimeError):  # The event loop may be closed already.
                    self._loop.call_soon_threadsafe(conclude, done.result)

        self._thread.submit(lambda: b"" if is_gone() else compute()).add_done_callback(ended)

    def close(self) -> None:
        """End the thread; passwords that wait are not hashed any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
