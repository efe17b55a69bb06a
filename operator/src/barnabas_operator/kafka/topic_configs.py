"""The configs of topics, with a cache, because a response has all configs of each topic and is large."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from kafka.admin import ConfigResource

from barnabas_operator.kafka.step_requests import TOPICS_A_REQUEST_MAX

Value = TypeVar("Value")
Ask = Callable[[Any, Sequence[str]], Mapping[str, Value]]
"""A function that reads, with kafka-python's admin client, a value such as `min.insync.replicas` of each topic."""

_SET_ON_TOPIC: Final = "DYNAMIC_TOPIC_CONFIG"
_MIN_ISR: Final = "min.insync.replicas"


class _Heard(NamedTuple, Generic[Value]):
    topic_id: str
    at_s: float
    value: Value


class TopicAnswers(Generic[Value]):
    """A cache with one value for each topic, which `ask` reads from the brokers and which expires after `kept_s`."""

    def __init__(self, ask: Ask[Value], client: Any, kept_s: float, now_s: Callable[[], float]) -> None:
        self._ask = ask
        self._client = client
        self._kept_s = kept_s
        self._now_s = now_s
        self._heard: dict[str, _Heard[Value]] = {}

    def of(self, ids: Mapping[str, str]) -> dict[str, Value]:
        """Return the cached value, or the value that `ask` reads, of each topic in `ids`.

        `ids` maps topic names to topic ids. A cached value is not used if the topic was deleted and created again.
        Topics that are not in `ids` are dropped from the cache.
        """
        now_s = self._now_s()
        kept = {
            name: heard
            for name, heard in self._heard.items()
            if ids.get(name) == heard.topic_id and now_s - heard.at_s < self._kept_s
        }
        asked = [name for name in ids if name not in kept]
        for start in range(0, len(asked), TOPICS_A_REQUEST_MAX):
            found = self._ask(self._client, asked[start : start + TOPICS_A_REQUEST_MAX])
            kept |= {name: _Heard(ids[name], now_s, each) for name, each in found.items()}
        self._heard = kept
        return {name: heard.value for name, heard in kept.items()}

    def forget(self, names: Iterable[str]) -> None:
        """Drop the values of these topics from the cache, because the topics are about to change."""
        for name in names:
            self._heard.pop(name, None)


def overrides(client: Any, names: Sequence[str]) -> dict[str, Mapping[str, str]]:
    """Return the configs that are set on each topic."""
    found = client.describe_configs([ConfigResource("TOPIC", name) for name in names])["topic"]
    return {
        name: {key: entry["value"] for key, entry in configs.items() if entry["config_source"] == _SET_ON_TOPIC}
        for name, configs in found.items()
    }


def min_isr(client: Any, names: Sequence[str]) -> dict[str, int]:
    """Return the `min.insync.replicas` of each topic."""
    resources = [ConfigResource("TOPIC", name, {_MIN_ISR: None}) for name in names]
    found = client.describe_configs(resources, config_filter="all").get("topic", {})
    return {name: int(configs[_MIN_ISR]["value"]) for name, configs in found.items() if _MIN_ISR in configs}
