"""The time for which brokers keep the offsets of groups without members, from `offsets.retention.minutes`."""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.admin import DescribeConfigsRequest

from barnabas_core.errors import ErrorCode
from barnabas_kafka.asking import Asking

SETTING: Final = "offsets.retention.minutes"
BROKER_RESOURCE: Final = 4
ASKED_EVERY_S: Final = 600.0
"""The seconds between two requests for the setting, which changes only when brokers restart."""
MINUTE_S: Final = 60.0


class OffsetsRetention:
    """The offsets retention of one cluster; `steady_s` is a clock that never goes back."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s: Final = steady_s
        self._asked_s = -inf
        self._seconds: float | None = None
        self.refusal = ""
        """The reason why the retention is unknown; empty if it is known, or if no broker has answered yet."""

    def seconds(self, asking: Asking, broker_ids: Sequence[int]) -> float | None:
        """Return the shortest retention of all brokers, or None if no broker reports it.

        Brokers are asked once in ASKED_EVERY_S, even after a failure. Raises ClusterUnreachable if no request can be
        sent.
        """
        if self._steady_s() - self._asked_s >= ASKED_EVERY_S:
            self._ask(asking, broker_ids)
            self._asked_s = self._steady_s()
        return self._seconds

    def _ask(self, asking: Asking, broker_ids: Sequence[int]) -> None:
        """Ask for the retention; if no broker answers, the last known value stays."""
        requests = {each: [_request(each)] for each in broker_ids}
        answers = [(broker_id, result) for broker_id, _, answer in asking.ask(requests) for result in answer.results]
        if answers:
            known = [seconds for _, result in answers if (seconds := _seconds(result)) is not None]
            self._seconds = min(known, default=None)
            self.refusal = "" if known else _refusal(*answers[0])


def _request(broker_id: int) -> Any:
    """Return the request for the offsets retention of one broker; a broker reports only its own settings."""
    of_broker = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[SETTING]
    )
    return DescribeConfigsRequest(resources=[of_broker])


def _seconds(result: Any) -> float | None:
    minutes = next((each.value for each in result.configs if each.name == SETTING), None)
    return int(minutes) * MINUTE_S if result.error_code == ErrorCode.NONE and minutes is not None else None


def _refusal(broker_id: int, result: Any) -> str:
    if result.error_code == ErrorCode.NONE:
        return f"broker {broker_id} does not know the setting offsets.retention.minutes"
    answered = f"broker {broker_id} answers DescribeConfigs with {for_code(result.error_code).__name__}"
    return f"{answered}; give the exporter's user the right DescribeConfigs on the cluster"
