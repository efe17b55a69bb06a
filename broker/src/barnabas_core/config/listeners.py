"""Parse and check the listeners of a broker: the addresses that it binds and those that it advertises."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from barnabas_core.config.definitions import ConfigProblem
from barnabas_core.config.listener_security import PROTOCOL_NAMES, SecurityProtocol

PORT_MAX: Final = 65535
_ENTRY: Final = re.compile(r"([^/\s]+)://(\[[0-9a-fA-F:.%]+\]|[^\[\]:/\s]*):([0-9]{1,5})")
_FORM: Final = (
    f"each entry must be NAME://HOST:PORT, with brackets around an IPv6 address and a port from 0 to {PORT_MAX}"
)
_EVERYWHERE: Final = ("0.0.0.0", "::")
_ONE_ADDRESS: Final = "must be an address that clients can reach; 0.0.0.0 and :: only mean every interface"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of a listener; an empty `host` binds all interfaces, and port 0 binds any free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Listeners:
    """The endpoints that a broker binds and those that it advertises, with the same names in the same order."""

    bound: tuple[Endpoint, ...]
    advertised: tuple[Endpoint, ...]
    inter_broker: str
    protocols: Mapping[str, SecurityProtocol]
    """The security protocol of each listener name."""

    @property
    def only_between_brokers(self) -> str | None:
        """The name of the listener that only brokers use; None if brokers and clients share the only listener."""
        return self.inter_broker if len(self.bound) > 1 else None


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The values of the settings about listeners."""

    listeners: tuple[str, ...]
    advertised: tuple[str, ...] | None
    hosts: str
    protocol_map: str
    controller_names: tuple[str, ...]
    inter_broker: str | None
    inter_broker_protocol: str


def resolve_listeners(settings: ListenerSettings) -> tuple[Listeners, list[ConfigProblem]]:
    """Return the listeners and the problems of their settings; with problems, the listeners must not be used.

    Kafka's controller listeners, which a standard KRaft file contains, are ignored.
    """
    problems: list[ConfigProblem] = []
    bound = _parse("listeners", settings.listeners, settings.controller_names, problems)
    if settings.advertised is None:
        advertised = bound
    else:
        advertised = _parse("advertised.listeners", settings.advertised, settings.controller_names, problems)
    protocols = _protocols(settings.protocol_map, problems)
    if not problems:
        problems += _duplicates("listeners", bound)
        problems += _with_protocol("listeners", bound, protocols)
        problems += _advertisable(bound, advertised)
    hosts = _by_name(settings.hosts)
    problems += _clients_cannot_reach(hosts.values())
    inter_broker = settings.inter_broker or _name_with(settings.inter_broker_protocol, bound, protocols)
    if not problems and all(endpoint.name != inter_broker for endpoint in bound):
        allowed = f"must be one of {', '.join(endpoint.name for endpoint in bound)}"
        problems.append(ConfigProblem("inter.broker.listener.name", inter_broker, allowed))
    by_name = {each.name: each for each in (*bound, *advertised)}
    pairs = tuple(replace(by_name[each.name], host=hosts.get(each.name, by_name[each.name].host)) for each in bound)
    return Listeners(bound, pairs, inter_broker, protocols), problems


def _parse(
    setting: str, entries: Iterable[str], left_out: Iterable[str], problems: list[ConfigProblem]
) -> tuple[Endpoint, ...]:
    endpoints = []
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None or int(match.group(3)) > PORT_MAX:
            problems.append(ConfigProblem(setting, entry, _FORM))
            continue
        name = match.group(1).upper()
        if name not in left_out:
            endpoints.append(Endpoint(name, match.group(2).strip("[]"), int(match.group(3))))
    if not endpoints and not problems:
        problems.append(ConfigProblem(setting, ",".join(entries), "must name at least one listener for clients"))
    return tuple(endpoints)


def _by_name(text: str) -> Mapping[str, str]:
    """Parse `NAME:TEXT,NAME:TEXT` into the text of each listener."""
    pairs = (entry.partition(":") for entry in text.split(","))
    return {name.strip().upper(): said.strip() for name, _, said in pairs}


def _protocols(text: str, problems: list[ConfigProblem]) -> Mapping[str, SecurityProtocol]:
    """Return the protocol of each listener name in listener.security.protocol.map."""
    protocols = {}
    for name, protocol in _by_name(text).items():
        if protocol.upper() in PROTOCOL_NAMES:
            protocols[name] = SecurityProtocol(protocol.upper())
        else:
            allowed = f"must be NAME:PROTOCOL separated by commas, each PROTOCOL one of {', '.join(PROTOCOL_NAMES)}"
            problems.append(ConfigProblem("listener.security.protocol.map", f"{name}:{protocol}", allowed))
    return protocols


def _duplicates(setting: str, endpoints: tuple[Endpoint, ...]) -> Iterable[ConfigProblem]:
    names = Counter(endpoint.name for endpoint in endpoints)
    addresses = Counter((endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port)
    for endpoint in endpoints:
        if names[endpoint.name] > 1:
            yield ConfigProblem(setting, str(endpoint), "must have a unique name")
        elif addresses[endpoint.host, endpoint.port] > 1:
            yield ConfigProblem(setting, str(endpoint), "must have a unique port")


def _with_protocol(
    setting: str, endpoints: Iterable[Endpoint], protocols: Mapping[str, SecurityProtocol]
) -> Iterable[ConfigProblem]:
    for endpoint in endpoints:
        protocol = protocols.get(endpoint.name)
        if protocol is None:
            allowed = f"listener.security.protocol.map must name the protocol of the listener {endpoint.name}"
            yield ConfigProblem(setting, str(endpoint), allowed)


def _advertisable(bound: tuple[Endpoint, ...], advertised: tuple[Endpoint, ...]) -> Iterable[ConfigProblem]:
    names = {endpoint.name for endpoint in bound}
    if advertised is bound:
        return
    yield from _duplicates("advertised.listeners", advertised)
    for endpoint in advertised:
        if endpoint.name not in names:
            allowed = f"must begin with the name of a listener: {', '.join(sorted(names))}"
            yield ConfigProblem("advertised.listeners", str(endpoint), allowed)
        if endpoint.host in _EVERYWHERE:
            yield ConfigProblem("advertised.listeners", str(endpoint), _ONE_ADDRESS)


def _clients_cannot_reach(hosts: Iterable[str]) -> Iterable[ConfigProblem]:
    return (ConfigProblem("advertised.hosts", host, _ONE_ADDRESS) for host in hosts if host in _EVERYWHERE)


def _name_with(protocol: str, bound: tuple[Endpoint, ...], protocols: Mapping[str, SecurityProtocol]) -> str:
    """Return the name of the first listener with the protocol, or the name of the protocol if no listener has it."""
    with_it = (endpoint.name for endpoint in bound if protocols.get(endpoint.name) is SecurityProtocol(protocol))
    return next(with_it, protocol)


def reachable(advertised: Iterable[Endpoint], host: str, ports: Iterable[int]) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints, with hosts and ports that clients can use.

    `host` replaces a host that means every interface, and a port from `ports` replaces port 0.
    """
    return tuple(
        replace(each, host=host if each.host in ("", *_EVERYWHERE) else each.host, port=each.port or port)
        for each, port in zip(advertised, ports, strict=True)
    )
