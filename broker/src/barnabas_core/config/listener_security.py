"""The security protocol and settings of each listener; settings of a listener override those of the broker.

`listener.name.NAME.CONFIG` sets CONFIG for one listener, and `listener.name.NAME.MECHANISM.CONFIG` for one SASL
mechanism of the listener (KIP-103). The settings for a listener are in `LISTENER_CONFIGS`, and those for a mechanism in
`MECHANISM_CONFIGS`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from barnabas_core.config.definitions import (
    ConfigDefinition,
    ConfigProblem,
    Dynamic,
    InvalidConfig,
    Synonym,
    Value,
    parse_value,
)
from barnabas_core.config.sasl_definitions import SASL_CONFIGS, SASL_MECHANISM_CONFIGS
from barnabas_core.config.ssl_definitions import RELOADED, SSL_CONFIGS

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


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security protocol and settings of a listener; `texts` has all settings of the broker, including passwords."""

    name: str
    protocol: SecurityProtocol
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

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
