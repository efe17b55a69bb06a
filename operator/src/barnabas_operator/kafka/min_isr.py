"""How many replicas of a topic must be in sync for writers with acks=all."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kafka.admin import ConfigResource

from barnabas_operator.kafka.step_requests import TOPICS_A_REQUEST_MAX

MIN_ISR: Final = "min.insync.replicas"


class _Heard(NamedTuple):
    topic_id: str
    at_s: float
    min_isr: int


class MinIsr:
    """Asks a kafka-python admin client about topics that lack replicas; what it hears is kept for `kept_s`."""

    def __init__(self, client: Any, kept_s: float, now_s: Callable[[], float]) -> None:
        self._client = client
        self._kept_s = kept_s
        self._now_s = now_s
        self._heard: dict[str, _Heard] = {}

    def of(self, ids: Mapping[str, str]) -> dict[str, int]:
        """By name, of topics whose ids are given by name. One that has just gone is away."""
        now_s = self._now_s()
        kept = {
            name: heard
            for name, heard in self._heard.items()
            if ids.get(name) == heard.topic_id and now_s - heard.at_s < self._kept_s
        }
        asked = [name for name in ids if name not in kept]
        for start in range(0, len(asked), TOPICS_A_REQUEST_MAX):
            for name, value in self._ask(asked[start : start + TOPICS_A_REQUEST_MAX]).items():
                kept[name] = _Heard(ids[name], now_s, value)
        self._heard = kept
        return {name: heard.min_isr for name, heard in kept.items()}

    def _ask(self, names: list[str]) -> dict[str, int]:
        resources = [ConfigResource("TOPIC", name, {MIN_ISR: None}) for name in names]
        found = self._client.describe_configs(resources, config_filter="all").get("topic", {})
        return {name: int(configs[MIN_ISR]["value"]) for name, configs in found.items() if MIN_ISR in configs}
