"""The log levels of this broker's loggers, as Kafka's BROKER_LOGGER configs (KIP-412).

Levels can be changed while the broker runs, and are lost when it stops. Loggers have Python's names, such as
`barnabas_broker.replication`; `root` is the parent of all loggers.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_core.errors import ApiError, ErrorCode

ROOT: Final = "root"
TRACE: Final = 5
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": TRACE,
    "WARN": logging.WARNING,
}
"""The Python log level by Kafka's name, in the order in which Kafka's error message lists the names."""


class BrokerLoggers:
    """The log levels of the root logger and of all loggers below it."""

    def __init__(self, root: logging.Logger) -> None:
        self._root = root

    def levels(self) -> dict[str, str]:
        """Return the effective level of each logger, by the name of the logger."""
        names = sorted(self._root.manager.loggerDict)
        return {ROOT: _name(self._root.level)} | {name: _name(self._logger(name).getEffectiveLevel()) for name in names}

    def alter(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
        """Set or delete log levels; a logger without a level inherits the level of its parent.

        Raises ApiError if one of the changes is invalid, and then makes no change.
        """
        for change in changes:
            self._check(change)
        for change in () if validate_only else changes:
            deleted = change.operation is ConfigOperation.DELETE
            self._logger(change.name).setLevel(logging.NOTSET if deleted else LEVELS[change.value or ""])

    def _check(self, change: ConfigChange) -> None:
        if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            message = f"{change.operation.name} operation is not allowed for the BROKER_LOGGER resource"
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        if change.name != ROOT and change.name not in self._root.manager.loggerDict:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        if change.operation is ConfigOperation.SET and change.value not in LEVELS:
            message = f"Cannot set the log level of {change.name} to {change.value} as it is not a supported log level."
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{message} Valid log levels are {', '.join(LEVELS)}")
        if change.operation is ConfigOperation.DELETE and change.name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")

    def _logger(self, name: str) -> logging.Logger:
        return self._root if name == ROOT else self._root.manager.getLogger(name)


def check_this_broker(name: str, broker_id: int) -> None:
    """Raise ApiError unless `name`, the name of a BROKER_LOGGER resource, is the id of this broker."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


def _name(level: int) -> str:
    """Return Kafka's name of the Python level `level`; a level between two names gets the name of the higher one."""
    return min(LEVELS, key=lambda name: (LEVELS[name] < level, abs(LEVELS[name] - level)))
