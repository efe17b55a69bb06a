"""The rules for decisions on partitions: the live brokers, and the topic's settings for replicas."""

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
    """`brokers` are all that are registered; `min_isr` and `unclean` are in force for the partition's topic.

    `log_ends` is what the replicas' logs end at, as far as they have reported: asked only where an election may
    be unclean.
    """

    brokers: Mapping[int, BrokerRegistration]
    min_isr: int = 1
    unclean: bool = False
    log_ends: Mapping[int, LogEnd] = field(default_factory=dict)

    def log_end(self, broker: int) -> tuple[int, int]:
        """The latest epoch and the end of a broker's log, to compare; of an unknown one as if it were empty."""
        end = self.log_ends.get(broker)
        return (-1, -1) if end is None else (end.epoch, end.offset)

    def is_alive(self, broker: int) -> bool:
        """True if a broker may be in an ISR."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced

    def may_lead(self, broker: int) -> bool:
        """True if a broker is alive and not shutting down."""
        registration = self.brokers.get(broker)
        return registration is not None and not registration.fenced and not registration.is_shutting_down

    def suffices(self, isr: Sequence[int], replicas: Sequence[int]) -> bool:
        """True if the high watermark may advance with this ISR (KIP-966), by the rule of leaders."""
        return len(isr) >= min(self.min_isr, len(replicas))


def rules_of(configs: Mapping[str, str], brokers: Mapping[int, BrokerRegistration], config: BrokerConfig) -> Rules:
    """The rules for a topic's partitions; `configs` are the topic's own, `config` gives their defaults."""
    min_isr = _value(configs, MIN_ISR, config.min_insync_replicas)
    unclean = _value(configs, UNCLEAN, config.unclean_leader_election_enable)
    assert isinstance(min_isr, int), "min.insync.replicas is an integer"
    return Rules(brokers, min_isr, unclean is True)


def _value(configs: Mapping[str, str], name: str, default: Value) -> Value:
    text = configs.get(name)
    if text is None:
        return default
    try:
        return parse_value(TOPIC_CONFIGS[name], text)
    except InvalidConfig:
        return default  # It was checked when it was set. Even if it is unreadable now, leaders must be elected.
