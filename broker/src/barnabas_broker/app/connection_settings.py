"""The conversion of broker settings to the settings of the package `server`."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from typing import Final

from barnabas_broker.security.sasl.listener_mechanisms import (
    ENABLED,
    SaslEnvironment,
    has_plain_of_scram,
    listener_mechanisms,
)
from barnabas_broker.security.sasl.scram_credential import SCRAM_HASHES
from barnabas_broker.server.listener import SocketSettings
from barnabas_broker.server.newcomers import BROKERS_MAX, ConnectionLimits, plain_address
from barnabas_broker.server.sasl_listener import DEADLINE_S, InThread, Logins, SaslListener
from barnabas_core.clock import Clock, Timers
from barnabas_core.config.broker_config import BrokerConfig
from barnabas_core.config.listeners import Endpoint, ListenerSecurity

log = logging.getLogger(__name__)

QUEUED_BYTES: Final = 128 * 1024 * 1024
"""The limit in bytes if queued.max.request.bytes=-1, which means no limit in Kafka."""


def socket_settings(config: BrokerConfig) -> SocketSettings:
    """Return the socket settings, which cannot change while the broker runs."""
    return SocketSettings(
        request_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes if config.queued_max_request_bytes > 0 else QUEUED_BYTES,
        idle_s_max=config.connections_max_idle_ms / 1000 if config.connections_max_idle_ms >= 0 else None,
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=_given(config.socket_send_buffer_bytes),
        receive_buffer_bytes=_given(config.socket_receive_buffer_bytes),
        protected_listener=config.listeners.only_between_brokers,
    )


def _given(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None


def is_open(config: BrokerConfig, endpoint: Endpoint) -> bool:
    """True if other machines can reach the listener, and its clients need neither a certificate nor SASL."""
    security = config.listener_security(endpoint.name)
    has_certificates = security.protocol.has_tls and security.value("ssl.client.auth") == "required"
    is_local = endpoint.host == "localhost" or (_is_address(endpoint.host) and ip_address(endpoint.host).is_loopback)
    return not (is_local or has_certificates or security.protocol.has_sasl)


def sasl_listeners(
    config: BrokerConfig, environment: SaslEnvironment, clock: Clock, timers: Timers, in_thread: InThread
) -> Iterator[SaslListener]:
    """Yield the listeners with SASL. Raises InvalidConfig if the settings of a mechanism are invalid."""
    for endpoint in config.listeners.bound:
        security = config.listener_security(endpoint.name)
        if not security.protocol.has_sasl:
            continue
        mechanisms = listener_mechanisms(security, environment)
        is_protected = endpoint.name == config.listeners.only_between_brokers
        yield SaslListener(
            name=endpoint.name,
            mechanisms=mechanisms,
            session_ms_max={name: _number(security, "connections.max.reauth.ms", name) for name in mechanisms},
            refusal_delay_s=config.connection_failed_authentication_delay_ms / 1000,
            frame_bytes_max=_number(security, "sasl.server.max.receive.size"),
            clock=clock,
            timers=timers,
            in_thread=in_thread,
            logins=Logins(timers, clock, BROKERS_MAX if is_protected else None, DEADLINE_S),
        )


def needs_scram_users(config: BrokerConfig) -> bool:
    """True if a listener verifies passwords by the SCRAM users."""
    securities = (config.listener_security(endpoint.name) for endpoint in config.listeners.bound)
    return any(each.protocol.has_sasl and _needs_scram_users(each) for each in securities)


def _needs_scram_users(security: ListenerSecurity) -> bool:
    return bool(SCRAM_HASHES.keys() & set(str(security.text(ENABLED)).split(","))) or has_plain_of_scram(security)


def _number(security: ListenerSecurity, setting: str, mechanism: str = "") -> int:
    value = security.value(setting, mechanism)
    assert isinstance(value, int), "a setting of type int must have been parsed into an int"
    return value


def limits_of(config: Callable[[], BrokerConfig], loop: asyncio.AbstractEventLoop) -> Callable[[], ConnectionLimits]:
    """Return a function that returns the current connection limits."""
    overrides = AddressOverrides(loop)

    def limits() -> ConnectionLimits:
        now = config()
        return ConnectionLimits(
            now.max_connections,
            now.max_connections_per_ip,
            overrides.by_address(now.max_connections_per_ip_overrides),
            now.max_connection_creation_rate,
        )

    return limits


class AddressOverrides:
    """The limits of max.connections.per.ip.overrides by address; each change of the setting resolves the host names."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._given: Mapping[str, int] = {}
        self._by_address: dict[str, int] = {}
        self._asking: set[asyncio.Task[None]] = set()

    def by_address(self, given: Mapping[str, int]) -> Mapping[str, int]:
        """Return the maximum number of connections of each client IP address that has a limit.

        A limit that is set for a host name is missing until a background task has resolved the host name.
        """
        if given != self._given:
            self._given = given
            self._by_address = {str(ip_address(host)): limit for host, limit in given.items() if _is_address(host)}
            for host in given:
                if not _is_address(host):
                    task = self._loop.create_task(self._ask(host, given[host], self._by_address))
                    self._asking.add(task)
                    task.add_done_callback(self._asking.discard)
        return self._by_address

    async def _ask(self, host: str, limit: int, by_address: dict[str, int]) -> None:
        try:
            found = await self._loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:  # UnicodeError means an invalid host name.
            log.warning(
                "the limit of host %s in max.connections.per.ip.overrides has no effect, because the host name "
                "cannot be resolved: %s",
                host,
                error,
            )
            return
        by_address.update((plain_address(str(place[4][0])), limit) for place in found)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
