"""The log levels of this broker's loggers, as Kafka's BROKER_LOGGER configs: read and changed while it runs (KIP-412).

Levels last until the broker ends. Names are Python's, such as `barnabas_broker.replication`; `root` is above all.
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
"""Kafka's names of levels, sorted as its messages show them."""


class BrokerLoggers:
    """The loggers below `root`, the one logger without a parent."""

    def __init__(self, root: logging.Logger) -> None:
        self._root = root

    def levels(self) -> dict[str, str]:
        """Return the level in force of each logger, by name."""
        names = sorted(self._root.manager.loggerDict)
        return {ROOT: _name(self._root.level)} | {name: _name(self._logger(name).getEffectiveLevel()) for name in names}

    def alter(self, changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
        """Set or delete levels; a deleted one is inherited. Raises ApiError if one is invalid, and changes none."""
        for change in changes:
            self._check(change)
        for change in () if validate_only else changes:
            deleted = change.operation is ConfigOperation.DELETE
            self._logger(change.name).setLevel(logging.NOTSET if deleted else LEVELS[change.value or ""])

    def _check(self, change: ConfigChange) -> None:
        """Raise ApiError for a change that Kafka refuses, too."""
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
    """Raise ApiError unless `name`, of a BROKER_LOGGER resource, is the id of this broker."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(broker_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {broker_id}, but received {name}")


def _name(level: int) -> str:
    """Return Kafka's name of the lowest level that is logged at `level`."""
    return min(LEVELS, key=lambda name: (LEVELS[name] < level, abs(LEVELS[name] - level)))
