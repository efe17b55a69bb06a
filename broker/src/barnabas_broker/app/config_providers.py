"""The placeholders of server.properties: `${file:PATH:KEY}`, `${dir:PATH:FILE}` and `${env:NAME}` (KIP-297).

Placeholders in dynamic configs are not replaced, because a client could make the broker read any file.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from barnabas_core.config.definitions import (
    ConfigProblem,
    InvalidConfig,
    MalformedProperties,
    Property,
    parse_properties,
)

PROVIDERS: Final = "config.providers"
_NOTHING: Final = Property("", None)
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_PLACEHOLDER: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*?)\}")
_UNREADABLE: Final = (OSError, UnicodeDecodeError, MalformedProperties, KeyError)

Properties = Mapping[str, Property]
Lookup = Callable[[str, str], str]
"""A config provider: a function that returns the value of a key at a path.

Raises one of the exceptions in `_UNREADABLE` if the path or the key does not exist.
"""


class LookupFailed(Exception):
    """The error of a placeholder without a value. The message contains only the placeholder, not the whole setting."""


def resolved(properties: Properties, environment: Mapping[str, str]) -> dict[str, Property]:
    """Return the properties with placeholders replaced, and without the settings of `config.providers`.

    Raises InvalidConfig if the class of a provider is unknown, or a placeholder has no value.
    """
    lookups = _lookups(properties, environment)
    problems: list[ConfigProblem] = []
    found: dict[str, Property] = {}
    for name, entry in properties.items():
        if name == PROVIDERS or name.startswith(f"{PROVIDERS}."):
            continue
        try:
            found[name] = entry._replace(value=_filled(entry.value, lookups))
        except LookupFailed as error:
            problems.append(ConfigProblem(name, None, str(error)))
    if problems:
        raise InvalidConfig(problems)
    return found


def _lookups(properties: Properties, environment: Mapping[str, str]) -> Mapping[str, Lookup]:
    classes: Mapping[str, Lookup] = {
        f"{_PACKAGE}FileConfigProvider": _of_file,
        f"{_PACKAGE}DirectoryConfigProvider": lambda path, key: _in_folder(path, key).read_text(encoding="utf-8"),
        f"{_PACKAGE}EnvVarConfigProvider": lambda _, key: environment[key],
    }
    lookups = {}
    for name in _names(properties):
        setting = f"{PROVIDERS}.{name}.class"
        provider = properties.get(setting, _NOTHING).value
        if provider not in classes:
            raise InvalidConfig([ConfigProblem(setting, provider, f"the class must be one of {', '.join(classes)}")])
        lookups[name] = classes[provider]
    return lookups


def _names(properties: Properties) -> Iterator[str]:
    listed = properties.get(PROVIDERS, _NOTHING).value.split(",")
    return (name.strip() for name in listed if name.strip())


def _filled(text: str, lookups: Mapping[str, Lookup]) -> str:
    """Return the text with its placeholders replaced; a placeholder of an unknown provider is kept."""

    def fill(match: re.Match[str]) -> str:
        lookup = lookups.get(match[1])
        try:
            return match[0] if lookup is None else lookup(match[2] or "", match[3])
        except _UNREADABLE as error:
            why = "the key does not exist" if isinstance(error, KeyError) else str(error)
            raise LookupFailed(f"{match[0]} cannot be looked up: {why}") from error

    return _PLACEHOLDER.sub(fill, text)


def _of_file(path: str, key: str) -> str:
    return parse_properties(Path(path).read_text(encoding="utf-8"))[key].value


def _in_folder(path: str, key: str) -> Path:
    """Return the path of a file in the folder. Raises KeyError for a key with a path, which might leave the folder."""
    if Path(key).name != key:
        raise KeyError(key)
    return Path(path) / key
