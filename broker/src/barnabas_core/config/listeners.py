"""Parse and check the listeners of a broker: the addresses that it binds and those that it advertises.

Each listener has a security protocol and settings, which override those of the broker. `listener.name.NAME.CONFIG` sets
CONFIG for one listener, and `listener.name.NAME.MECHANISM.CONFIG` for one SASL mechanism of the listener (KIP-103). The
settings for a listener are in `LISTENER_CONFIGS`, and those for a mechanism in `MECHANISM_CONFIGS`.

A value of sasl.jaas.config is one login module with its options, in Java's syntax. No Java class is loaded; only three
names of login modules are accepted.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final

import msgspec
from msgspec.structs import replace

from barnabas_core.config.definitions import (
    ConfigDefinition,
    ConfigProblem,
    Dynamic,
    InvalidConfig,
    Synonym,
    Value,
    parse_value,
)
from barnabas_core.config.security_definitions import RELOADED, SASL_CONFIGS, SASL_MECHANISM_CONFIGS, SSL_CONFIGS

_PREFIXED: Final = re.compile(r"listener\.name\.([^.]+)\.(.+)")

LISTENER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {**SSL_CONFIGS, **SASL_CONFIGS}
"""The settings that one listener can have, with the prefix `listener.name.NAME.`."""
MECHANISM_CONFIGS: Final[Mapping[str, ConfigDefinition]] = SASL_MECHANISM_CONFIGS
"""The settings that one SASL mechanism of a listener can have, with the prefix `listener.name.NAME.MECHANISM.`."""


class SecurityProtocol(Enum):
    """Kafka's security protocols of listeners."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        """True if connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """True if clients authenticate by SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


PROTOCOL_NAMES: Final = tuple(protocol.value for protocol in SecurityProtocol)


class ListenerSecurity(msgspec.Struct, frozen=True):
    """The security protocol and settings of a listener; `texts` has all settings of the broker, including passwords."""

    name: str
    protocol: SecurityProtocol
    texts: Mapping[str, str] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ListenerSecurity(name={self.name!r}, protocol={self.protocol!r})"

    def setting(self, config: str, mechanism: str = "") -> str:
        """Return the most specific name under which `config` is set for this listener; without any, `config` itself."""
        prefix = f"listener.name.{self.name.lower()}."
        names = (f"{prefix}{mechanism.lower()}.{config}", f"{prefix}{config}")
        return next((name for name in names[0 if mechanism else 1 :] if name in self.texts), config)

    def text(self, config: str, mechanism: str = "") -> str | None:
        """Return the text of `config` for this listener; None if it is not set."""
        return self.texts.get(self.setting(config, mechanism))

    def value(self, config: str, mechanism: str = "") -> Value:
        """Return the value of a setting of LISTENER_CONFIGS or MECHANISM_CONFIGS, or its default if it is not set.

        Raise InvalidConfig if the text is invalid.
        """
        definition = LISTENER_CONFIGS.get(config) or MECHANISM_CONFIGS[config]
        name = self.setting(config, mechanism)
        text = self.texts.get(name)
        return definition.default if text is None else parse_value(replace(definition, name=name), text)

    def problem(self, config: str, allowed: str, mechanism: str = "") -> ConfigProblem:
        """Return the ConfigProblem of an invalid setting of this listener; the value of a password is left out."""
        name = self.setting(config, mechanism)
        definition = LISTENER_CONFIGS.get(config) or MECHANISM_CONFIGS.get(config)
        is_secret = definition is None or definition.sensitive
        return ConfigProblem(name, None if is_secret else self.texts.get(name), allowed)

    def invalid(self, config: str, allowed: str) -> InvalidConfig:
        """Return the error that a setting of this listener is invalid."""
        return InvalidConfig([self.problem(config, allowed)])


def without_prefix(name: str) -> str | None:
    """Return CONFIG for `listener.name.NAME.CONFIG` or `listener.name.NAME.MECHANISM.CONFIG`; None for other names."""
    match = _PREFIXED.fullmatch(name)
    if match is None:
        return None
    mechanism, _, rest = match[2].partition(".")
    return rest if match[2] not in LISTENER_CONFIGS and rest in MECHANISM_CONFIGS and mechanism else match[2]


def prefixed_definition(name: str) -> ConfigDefinition | None:
    """Return the definition of a setting with the prefix of a listener; None if the name is unknown."""
    config = without_prefix(name)
    found = None if config is None else LISTENER_CONFIGS.get(config) or MECHANISM_CONFIGS.get(config)
    if config is None or found is None:
        return None
    dynamic = Dynamic.PER_BROKER if config in RELOADED else Dynamic.READ_ONLY
    return replace(found, name=name, default=None, dynamic=dynamic, synonyms=(Synonym(config),))


PORT_MAX: Final = 65535
_ENTRY: Final = re.compile(r"([^/\s]+)://(\[[0-9a-fA-F:.%]+\]|[^\[\]:/\s]*):([0-9]{1,5})")
_FORM: Final = (
    f"each entry must be NAME://HOST:PORT, with brackets around an IPv6 address and a port from 0 to {PORT_MAX}"
)
_EVERYWHERE: Final = ("0.0.0.0", "::")
_ONE_ADDRESS: Final = "must be an address that clients can reach; 0.0.0.0 and :: only mean every interface"


class Endpoint(msgspec.Struct, frozen=True):
    """An address of a listener; an empty `host` binds all interfaces, and port 0 binds any free port."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class Listeners(msgspec.Struct, frozen=True):
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


class ListenerSettings(msgspec.Struct, frozen=True):
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
    return {name.strip().upper(): value.strip() for name, _, value in pairs}


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


def reachable(advertised: Iterable[Endpoint], host: Callable[[], str], ports: Iterable[int]) -> tuple[Endpoint, ...]:
    """Return the advertised endpoints, with hosts and ports that clients can use.

    The result of `host` replaces a host that means every interface, and a port from `ports` replaces port 0.
    """
    return tuple(
        replace(each, host=host() if each.host in ("", *_EVERYWHERE) else each.host, port=each.port or port)
        for each, port in zip(advertised, ports, strict=True)
    )


DN_CHARACTERS_MAX: Final = 4096
"""The longest DN to which rules are applied, because a regular expression may take long on a long text."""
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(,|$)")
_GROUP: Final = re.compile(r"\$([0-9])")
_RULE_FORM: Final = (
    "must be rules separated by commas, each DEFAULT or RULE:PATTERN/REPLACEMENT/ with an optional L or U at its end"
)


class PrincipalRule(msgspec.Struct, frozen=True):
    """A mapping rule; DEFAULT keeps the whole DN."""

    pattern: re.Pattern[str]
    replacement: str
    change_case: Callable[[str], str]

    def name_of(self, dn: str) -> str | None:
        """Return the user name for a certificate's DN; None if the rule's pattern does not match the whole DN."""
        match = self.pattern.fullmatch(dn)
        if match is None:
            return None

        def group(found: re.Match[str]) -> str:
            number = int(found[1])
            return (match[number] or "") if number <= self.pattern.groups else found[0]

        return self.change_case(_GROUP.sub(group, self.replacement))


def parse_principal_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Return the rules in the order of the setting. Raise ValueError if a rule or its pattern is malformed."""
    rules: list[PrincipalRule] = []
    position = 0
    while position < len(text) or not rules:
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"{text[position:]}: {_RULE_FORM}")
        rules.append(_rule(match))
        position = match.end()
    return tuple(rules)


def _rule(match: re.Match[str]) -> PrincipalRule:
    if match[1]:
        return PrincipalRule(re.compile("(.*)", re.DOTALL), "$1", str)
    pattern, replacement = match[2].replace(r"\/", "/"), match[3].replace(r"\/", "/")
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern} is not a regular expression: {error}") from error
    return PrincipalRule(compiled, replacement, _CASES[match[4]])


_CASES: Final[Mapping[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}


def name_by_rules(dn: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return the user name from the first matching rule; None if no rule matches or the DN is too long."""
    if len(dn) > DN_CHARACTERS_MAX:
        return None
    return next((name for rule in rules if (name := rule.name_of(dn)) is not None), None)


_PACKAGE: Final = "org.apache.kafka.common.security."
MODULES: Final[Mapping[str, str]] = {
    "plain.PlainLoginModule": "PLAIN",
    "scram.ScramLoginModule": "SCRAM",
    "oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
}
FLAGS: Final = ("required", "requisite", "sufficient", "optional")
FORM: Final = 'must be MODULE required NAME="VALUE" ... ;'
_USER_PREFIX: Final = "user_"
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)|(?P<word>[\w.$-]+)|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<sign>[=;])""",
    re.DOTALL,
)
_NUMBER: Final = re.compile(r"-?[0-9.]+")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class InvalidJaas(Exception):
    """The error that a JAAS text is invalid; the message contains no value of an option."""


class JaasEntry(msgspec.Struct, frozen=True):
    """A login module: its family of mechanisms, and its options, whose values are secrets."""

    family: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasEntry(family={self.family!r})"

    @property
    def users(self) -> Mapping[str, str]:
        """The passwords of PLAIN users, by user name."""
        prefix = len(_USER_PREFIX)
        return {name[prefix:]: value for name, value in self.options.items() if name.startswith(_USER_PREFIX)}


def parse_jaas(text: str) -> JaasEntry:
    """Parse a JAAS text with exactly one login module. Raise InvalidJaas."""
    tokens = list(_tokens(text))
    if not tokens or tokens[-1] != (";", True):
        raise InvalidJaas(f"{FORM} It must end in ;")
    words = tokens[:-1]
    if (";", True) in words:
        raise InvalidJaas("must have exactly one login module")
    if len(words) < 2 or words[0][1] or words[1][1] or words[1][0].lower() not in FLAGS:
        raise InvalidJaas(f"{FORM} The word after the module must be one of {', '.join(FLAGS)}")
    return JaasEntry(_family(words[0][0]), dict(_options(words[2:])))


def _family(module: str) -> str:
    family = MODULES.get(module.removeprefix(_PACKAGE)) if module.startswith(_PACKAGE) else None
    if family is None:
        allowed = ", ".join(_PACKAGE + each for each in MODULES)
        raise InvalidJaas(f"{module} is not a supported login module; must be one of {allowed}")
    return family


def _options(words: list[tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    for index in range(0, len(words), 3):
        option = words[index : index + 3]
        if len(option) < 3 or option[1] != ("=", True) or option[0][1] or option[2][1]:
            raise InvalidJaas(f'{FORM} Option {index // 3 + 1} must be NAME="VALUE"')
        yield option[0][0], option[2][0]


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text of each token, and True if the token is one of the signs `=` and `;`. Raise InvalidJaas."""
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidJaas(f"{FORM} Character {position + 1} must begin a word or a quoted text, or be = or ;")
        position = match.end()
        if match["blank"]:
            continue
        if match["sign"]:
            yield match["sign"], True
        elif match["word"] is not None:
            if _NUMBER.fullmatch(match["word"]):
                raise InvalidJaas(f"{FORM} The number before character {position + 1} must be in quotes")
            yield match["word"], False
        else:
            yield _unescaped(match["double"] if match["double"] is not None else match["single"]), False


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)
