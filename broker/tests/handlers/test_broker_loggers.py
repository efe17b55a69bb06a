"""Log levels as BROKER_LOGGER configs: a request changes all levels that it names, or none."""

import logging

import pytest

from barnabas_broker.handlers.handler_environment import BrokerLoggers, check_this_broker
from barnabas_broker.metadata.controller.decisions.alter_configs import ConfigChange, ConfigOperation
from barnabas_core.errors import ApiError, ErrorCode

SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND


@pytest.fixture
def loggers() -> BrokerLoggers:
    """Return loggers with a root at INFO and one logger two levels below it."""
    root = logging.RootLogger(logging.INFO)
    root.manager = logging.Manager(root)
    root.manager.getLogger("broker.storage")
    return BrokerLoggers(root)


def test_loggers_are_listed_with_their_effective_levels(loggers: BrokerLoggers) -> None:
    loggers.alter([ConfigChange("broker", SET, "DEBUG")], validate_only=False)
    assert loggers.levels() == {"root": "INFO", "broker": "DEBUG", "broker.storage": "DEBUG"}
    loggers.alter([ConfigChange("broker", DELETE, None), ConfigChange("root", SET, "FATAL")], validate_only=False)
    assert loggers.levels() == {"root": "FATAL", "broker": "FATAL", "broker.storage": "FATAL"}


REFUSED = [
    (ConfigChange("nobody", SET, "INFO"), ErrorCode.INVALID_CONFIG, "Logger nobody does not exist!"),
    (ConfigChange("broker", SET, "LOUD"), ErrorCode.INVALID_CONFIG, "Valid log levels are DEBUG, ERROR, FATAL, INFO,"),
    (ConfigChange("broker", SET, None), ErrorCode.INVALID_CONFIG, "Cannot set the log level of broker to None"),
    (ConfigChange("root", DELETE, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger"),
    (ConfigChange("broker", APPEND, "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
]


@pytest.mark.parametrize(("change", "code", "message"), REFUSED)
def test_a_request_with_one_bad_change_changes_nothing(
    loggers: BrokerLoggers, change: ConfigChange, code: ErrorCode, message: str
) -> None:
    with pytest.raises(ApiError) as refused:
        loggers.alter([ConfigChange("broker.storage", SET, "TRACE"), change], validate_only=False)
    assert refused.value.code is code
    assert message in str(refused.value.message)
    assert loggers.levels()["broker.storage"] == "INFO"


def test_a_request_that_only_validates_changes_nothing(loggers: BrokerLoggers) -> None:
    loggers.alter([ConfigChange("broker", SET, "TRACE")], validate_only=True)
    assert loggers.levels()["broker"] == "INFO"


@pytest.mark.parametrize("name", ["", "2", "x"])
def test_a_request_for_the_loggers_of_another_broker_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_this_broker(name, 1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
