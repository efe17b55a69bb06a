"""The rules for decisions on partitions: which brokers are alive, and which topic settings apply."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from barnabas_broker.metadata.model import BrokerRegistration, LogEnd
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.definitions import InvalidConfig, Value, parse_value
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class Rules:
    """The brokers and topic settings that a decision on a partition uses.

    `brokers` has all registered brokers. `log_ends` has the log ends that the replicas have reported; only
    `overtake`, and elections with `unclean`, need these log ends.
    """

    brokers: Mapping[int, BrokerRegistration]
    min_isr: int = 1
    unclean: bool = False
    log_ends: Mapping[int, LogEnd] = field(default_factory=dict)

    def log_end(self, broker: int) -> tuple[int, int]:
        """Return the leader epoch and offset at which a broker's log ends; (-1, -1) if unknown."""
        end = self.log_ends.get(broker)
        return (-1, -1) if end is None else (end.epoch, end.offset)

    def is_alive(self, broker: int) -> bool:
        """True if a broker is registered and not fenced."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced

    def may_lead(self, broker: int) -> bool:
        """True if a broker is alive and not shutting down."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced and not registration.is_shutting_down

    def suffices(self, isr: Sequence[int], replicas: Sequence[int]) -> bool:
        """True if the ISR is large enough for the high watermark to advance (KIP-966)."""
        return len(isr) >= min(self.min_isr, len(replicas))


def rules_of(configs: Mapping[str, str], brokers: Mapping[int, BrokerRegistration], config: BrokerConfig) -> Rules:
    """Return the settings and brokers that determine the leaders and ISRs of a topic's partitions.

    `configs` has the topic's own settings, and `config` provides the defaults.
    """
    min_isr = _value(configs, MIN_ISR, config.min_insync_replicas)
    unclean = _value(configs, UNCLEAN, config.unclean_leader_election_enable)
    assert isinstance(min_isr, int), "min.insync.replicas must be an integer"
    return Rules(brokers, min_isr, unclean is True)


def _value(configs: Mapping[str, str], name: str, default: Value) -> Value:
    text = configs.get(name)
    if text is None:
        return default
    try:
        return parse_value(TOPIC_CONFIGS[name], text)
    except InvalidConfig:
        return default  # Leaders must be elected even if a stored value has become unreadable.
