"""Known mistakes with brokers' settings, each planted by a patch."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch
from weakref import WeakSet

from barnabas_broker.app.node import DynamicSettings, Node
from barnabas_broker.metadata.controller.decisions import alter_configs
from barnabas_broker.metadata.documents import ImageChange
from barnabas_core.config.broker_config import BrokerConfig


@contextmanager
def goes_by_the_settings_it_started_with() -> Iterator[None]:
    """A changed setting is stored, but is used only after the next start."""
    with patch.object(Node, "_configs_changed", lambda *_: None):
        yield


@contextmanager
def starts_with_the_settings_of_its_file() -> Iterator[None]:
    """Earlier changes are used only once another setting is changed after a start."""
    over, configs_changed = DynamicSettings.over, Node._configs_changed
    altered: WeakSet[DynamicSettings] = WeakSet()

    def mistaken(self: DynamicSettings, config: BrokerConfig) -> BrokerConfig:
        return over(self, config) if self in altered else config

    def alter(self: Node, change: ImageChange) -> None:
        if change.configs:
            altered.add(self._dynamic)
        configs_changed(self, change)

    with patch.object(DynamicSettings, "over", mistaken), patch.object(Node, "_configs_changed", alter):
        yield


@contextmanager
def takes_settings_that_contradict() -> Iterator[None]:
    """Each setting is checked by itself, so contradictions are accepted."""
    with patch.object(alter_configs, "_check_min_isr", lambda *_: None):
        yield
