"""Unhandled exceptions: those that brokers log with a traceback, and those that reach the event loop."""

import asyncio
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from simulation.history import History

BROKER: Final = logging.getLogger("barnabas_broker")


class _Handler(logging.Handler):
    """Collects logged errors: one without an exception is a known fault, one with it is a bug."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._history.violation(_story(record.getMessage(), error))


@contextmanager
def unhandled_exceptions_fail(loop: asyncio.BaseEventLoop, history: History) -> Iterator[None]:
    """Make each unhandled exception a violation in `history`."""

    def escaped(_: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:  # Without one, a killed task was not finished.
            history.violation(_story(context["message"], error))

    handler = _Handler(history)
    loop.set_exception_handler(escaped)
    logging.disable(logging.WARNING)
    propagates, BROKER.propagate = BROKER.propagate, False
    BROKER.addHandler(handler)
    try:
        yield
    finally:
        BROKER.removeHandler(handler)
        BROKER.propagate = propagates
        logging.disable(logging.NOTSET)


def _story(message: str, error: BaseException) -> str:
    return f"{message}\n{''.join(traceback.format_exception(error))}"
