"""Exceptions that nobody handled: what brokers log with a traceback, and what ends up with the event loop."""

import asyncio
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from simulation.history import History

BROKER: Final = logging.getLogger("barnabas_broker")


class _Handler(logging.Handler):
    """An error without an exception tells of a fault that the broker knows of, one with it of a bug."""

    def __init__(self, history: History) -> None:
        super().__init__(logging.ERROR)
        self._history = history

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self._history.violation(_story(record.getMessage(), error))


@contextmanager
def unhandled_exceptions_fail(loop: asyncio.BaseEventLoop, history: History) -> Iterator[None]:
    """Each is a violation in `history`."""

    def escaped(_: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:  # Without one it says that a task was not finished: a killed process's never is.
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
