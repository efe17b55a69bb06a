"""The configs that are set on topics. They are asked for seldom: an answer holds every config of each topic."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kafka.admin import ConfigResource

from barnabas_operator.kafka.step_requests import TOPICS_A_REQUEST_MAX

TopicConfigs = Mapping[str, str]

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"


class _Heard(NamedTuple):
    topic_id: str
    at_s: float
    overrides: TopicConfigs


class TopicOverrides:
    """Asks a kafka-python admin client, and keeps what it hears for `kept_s` by the clock `now_s`."""

    def __init__(self, client: Any, kept_s: float, now_s: Callable[[], float]) -> None:
        self._client = client
        self._kept_s = kept_s
        self._now_s = now_s
        self._heard: dict[str, _Heard] = {}

    def of(self, ids: Mapping[str, str]) -> dict[str, TopicConfigs]:
        """By name, of topics whose ids are given by name. A topic that was created again is read again."""
        now_s = self._now_s()
        kept = {name: self._heard[name] for name in ids if self._is_fresh(name, ids[name], now_s)}
        found = self._ask([name for name in ids if name not in kept])
        self._heard = kept | {name: _Heard(ids[name], now_s, overrides) for name, overrides in found.items()}
        return {name: heard.overrides for name, heard in self._heard.items()}

    def forget(self, names: Iterable[str]) -> None:
        """These have just been changed."""
        for name in names:
            self._heard.pop(name, None)

    def _is_fresh(self, name: str, topic_id: str, now_s: float) -> bool:
        heard = self._heard.get(name)
        return heard is not None and heard.topic_id == topic_id and now_s - heard.at_s < self._kept_s

    def _ask(self, names: Sequence[str]) -> dict[str, TopicConfigs]:
        """In parts: a broker makes an answer in one go."""
        overrides: dict[str, TopicConfigs] = {}
        for start in range(0, len(names), TOPICS_A_REQUEST_MAX):
            resources = [ConfigResource("TOPIC", name) for name in names[start : start + TOPICS_A_REQUEST_MAX]]
            for name, configs in self._client.describe_configs(resources)["topic"].items():
                entries = {key: entry for key, entry in configs.items() if entry["config_source"] == _SET_ON_TOPIC}
                overrides[name] = {key: entry["value"] for key, entry in entries.items()}
        return overrides
