"""The dynamic configs of a broker, which override the settings in its properties file."""

import logging
from collections.abc import Iterator

from barnabas_broker.handlers.handler_environment import IgnoredConfig
from barnabas_broker.metadata.documents import ALL_BROKERS
from barnabas_broker.metadata.image.metadata_image import MetadataImage
from barnabas_broker.replication.topic_settings import TopicSettings
from barnabas_core.config.broker_config import BrokerConfig, unused_settings
from barnabas_core.config.definitions import ConfigProblem

log = logging.getLogger(__name__)


class DynamicSettings:
    """The dynamic configs of one broker and of all brokers; invalid configs and configs without effect are logged."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._warnings: list[str] = []
        self.ignored: tuple[ConfigProblem, ...] = ()
        """The stored configs that are ignored because they are invalid."""

    def over(self, config: BrokerConfig) -> BrokerConfig:
        """Return `config` overridden by the dynamic configs; log new warnings and set `ignored` to the invalid ones."""
        own = self._image.configs_of_broker(str(config.broker_id))
        everybodys = self._image.configs_of_broker(ALL_BROKERS)
        in_force, ignored = config.with_usable(own, everybodys)
        if ignored and ignored != self.ignored:
            log.error("invalid dynamic configs of this broker are ignored: %s", "; ".join(map(str, ignored)))
        self.ignored = ignored
        warnings = unused_settings({**everybodys, **own})
        for warning in warnings:
            if warning not in self._warnings:
                log.warning(warning)
        self._warnings = warnings
        return in_force


def ignored_configs(broker_id: int, dynamic: DynamicSettings, topics: TopicSettings) -> Iterator[IgnoredConfig]:
    """Yield the invalid configs of this broker and of topics; a broker ignores stored configs that are invalid."""
    yield from (IgnoredConfig("broker", str(broker_id), problem.name) for problem in dynamic.ignored)
    yield from (IgnoredConfig("topic", topic, problem.name) for topic, problem in topics.ignored())
