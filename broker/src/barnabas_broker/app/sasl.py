"""The SASL settings of a broker's listeners."""

from collections.abc import Iterator

from barnabas_broker.security.sasl.listener_mechanisms import (
    ENABLED,
    SaslEnvironment,
    has_plain_of_scram,
    listener_mechanisms,
)
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES
from barnabas_broker.server.sasl_listener import InThread, SaslListener
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listener_security import ListenerSecurity


def sasl_listeners(
    config: BrokerConfig, environment: SaslEnvironment, clock: Clock, timers: Timers, in_thread: InThread
) -> Iterator[SaslListener]:
    """Yield the listeners with SASL. Raises InvalidConfig if the settings of a mechanism are invalid."""
    for endpoint in config.listeners.bound:
        security = config.listener_security(endpoint.name)
        if not security.protocol.has_sasl:
            continue
        mechanisms = listener_mechanisms(security, environment)
        yield SaslListener(
            name=endpoint.name,
            mechanisms=mechanisms,
            session_ms_max={name: _number(security, "connections.max.reauth.ms", name) for name in mechanisms},
            refusal_delay_s=config.connection_failed_authentication_delay_ms / 1000,
            frame_bytes_max=_number(security, "sasl.server.max.receive.size"),
            clock=clock,
            timers=timers,
            in_thread=in_thread,
        )


def scram_listener(config: BrokerConfig) -> str | None:
    """Return the name of a listener that needs the SCRAM users, or None without such a listener."""
    for endpoint in config.listeners.bound:
        security = config.listener_security(endpoint.name)
        if security.protocol.has_sasl and _needs_scram_users(security):
            return endpoint.name
    return None


def _needs_scram_users(security: ListenerSecurity) -> bool:
    return bool(SCRAM_HASHES.keys() & set(str(security.text(ENABLED)).split(","))) or has_plain_of_scram(security)


def _number(security: ListenerSecurity, setting: str, mechanism: str = "") -> int:
    value = security.value(setting, mechanism)
    assert isinstance(value, int), "a setting of type int must have been parsed into an int"
    return value
