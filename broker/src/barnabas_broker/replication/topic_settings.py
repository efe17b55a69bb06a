"""The effective settings of each topic. Stored settings that cannot be used are ignored, logged and counted."""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from barnabas_broker.metadata.model import TopicDocument
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import ConfigProblem
from barnabas_core.config.topic_configs import EffectiveLogConfig, effective_log_config

log = logging.getLogger(__name__)

KEPT_MAX: Final = 1_000
"""The maximum number of sets of topic settings in the cache; most topics share a set with other topics."""


class TopicSettings:
    """The effective settings of topics, computed from the stored topic settings and the settings of the broker."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._kept: dict[tuple[tuple[str, str], ...], EffectiveLogConfig] = {}
        self._ignored: dict[str, tuple[ConfigProblem, ...]] = {}

    def under(self, broker: BrokerConfig) -> None:
        """Replace the settings of the broker."""
        self._broker = broker
        self._kept.clear()

    def of(self, topic: TopicDocument) -> EffectiveLogConfig:
        """Return the effective settings of a topic; log the ignored settings if they have changed."""
        effective = self._effective(topic.configs)
        if effective.ignored != self._ignored.get(topic.name, ()):
            self._tell(topic.name, effective.ignored)
        return effective

    def forget(self, topic: str) -> None:
        """Drop the list of the ignored settings of a deleted topic."""
        self._ignored.pop(topic, None)

    def ignored(self) -> Iterator[tuple[str, ConfigProblem]]:
        """Return the ignored settings of all topics, as pairs of topic name and problem."""
        return ((topic, problem) for topic, problems in self._ignored.items() for problem in problems)

    def _effective(self, configs: Mapping[str, str]) -> EffectiveLogConfig:
        key = tuple(configs.items())
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= KEPT_MAX:
                self._kept.clear()
            found = self._kept[key] = effective_log_config(configs, self._broker)
        return found

    def _tell(self, topic: str, problems: tuple[ConfigProblem, ...]) -> None:
        if problems:
            self._ignored[topic] = problems
            log.error("some settings of topic %s have no effect: %s", topic, "; ".join(map(str, problems)))
        else:
            self.forget(topic)
