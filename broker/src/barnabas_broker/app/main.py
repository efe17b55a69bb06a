"""`barnabas broker server.properties`: runs a broker until SIGTERM or SIGINT.

The exit code is 0 after a clean shutdown, 1 if the broker could not start or failed, and 2 for invalid settings.

The settings may have placeholders: `${file:PATH:KEY}`, `${dir:PATH:FILE}` and `${env:NAME}` (KIP-297).
Placeholders in dynamic configs are not replaced, because a client could make the broker read any file.
"""

import argparse
import asyncio
import logging
import os
import re
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from barnabas_broker.app import loop_turns
from barnabas_broker.app.broker import Broker, CannotStart
from barnabas_broker.app.loop_turns import MeasuringSelector, interrupt_threads_soon
from barnabas_core.config.broker_config import BrokerConfig, parse_broker_config, unused_settings
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


log = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = "max.connections"
EXIT_FAILED: Final = 1
EXIT_CONFIG: Final = 2
LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
RESERVE_MIN: Final = 64
"""The minimum number of file descriptors in reserve, for the metadata store, helper processes, checkpoints and links to
other brokers."""
RESERVE_SHARE: Final = 8
SEGMENTS_SHARE: Final = 4
UNLIMITED: Final = 1 << 20


def main(arguments: Sequence[str]) -> int:
    """Run a broker; return the exit code."""
    about_file = "the file with the broker's settings, in Kafka's format"
    options = parser_of("broker", "Run one broker.", about_file).parse_args(arguments)
    return run(lambda connections: read_config(options.properties, options.override, connections), options.properties)


def run(read: Callable[[int], BrokerConfig], source: object, on_ready: Callable[[], object] = lambda: None) -> int:
    """Run a broker with the settings that `read` returns, and return the exit code.

    `read` gets the default of `max.connections`. `source` is where the settings are from, for messages. `on_ready` is
    called when the broker serves clients.
    """
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stdout)
    descriptors = take_all()
    try:
        config = read(descriptors.connections)
    except (OSError, MalformedProperties) as error:
        print(f"barnabas broker: {source}: {error}", file=sys.stderr)
        return EXIT_CONFIG
    except InvalidConfig as error:
        for problem in error.problems:
            print(f"barnabas broker: {source}: {problem}", file=sys.stderr)
        return EXIT_CONFIG
    for warning in unused_settings(config.originals):
        log.warning(warning)
    selector = MeasuringSelector()
    selector.turns.measure_parts()
    loop_turns.freeze()
    interrupt_threads_soon()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        return runner.run(_run(config, descriptors, selector, on_ready))


class Descriptors(NamedTuple):
    """The number of file descriptors, and its shares for segments and connections."""

    total: int
    segments: int
    connections: int


def share_out(total: int) -> Descriptors:
    """Divide `total`: a quarter for segments, an eighth (at least RESERVE_MIN) in reserve, the rest for connections."""
    segments = max(total // SEGMENTS_SHARE, 1)
    reserve = max(total // RESERVE_SHARE, RESERVE_MIN)
    return Descriptors(total, segments, max(total - segments - reserve, 1))


def take_all() -> Descriptors:
    """Raise the soft limit of open files to the hard limit, and return the result of `share_out` for the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return share_out(UNLIMITED if hard == resource.RLIM_INFINITY else hard)


def parser_of(command: str, description: str | None, about_file: str) -> argparse.ArgumentParser:
    """Return a parser of a command that reads the settings of a broker from a file, which `about_file` describes."""
    parser = argparse.ArgumentParser(prog=f"barnabas {command}", description=description)
    parser.add_argument("properties", metavar="server.properties", type=Path, help=about_file)
    parser.add_argument(
        "--override",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="set NAME to VALUE, whatever the properties file says; the option can be repeated",
    )
    return parser


def read_config(path: Path, overrides: Sequence[str], connections: int) -> BrokerConfig:
    """Return the settings of the properties file, changed by the overrides and with placeholders replaced.

    `connections` is the default of `max.connections`, which depends on the limit of open files. Raises OSError,
    MalformedProperties and InvalidConfig.
    """
    properties = parse_properties(path.read_text(encoding="utf-8"))
    for override in overrides:
        name, separator, value = override.partition("=")
        if not separator:
            raise MalformedProperties(f"--override {override} is invalid; the option needs the form NAME=VALUE")
        properties[name.strip()] = Property(value.strip(), None)
    return parse_broker_config({MAX_CONNECTIONS: str(connections), **resolved(properties, os.environ)})


async def _run(
    config: BrokerConfig, descriptors: Descriptors, selector: MeasuringSelector, on_ready: Callable[[], object]
) -> int:
    _log_descriptors(config, descriptors)
    broker = Broker(config, descriptors.segments, asyncio.get_running_loop(), selector)
    try:
        is_started = await broker.start()
    except CannotStart as error:
        log.error("cannot start: %s", error)
        await broker.stop()
        return EXIT_FAILED
    if is_started:
        on_ready()
        await broker.wait_for_signal()
    if broker.failure is not None:
        log.error("stopping: %s", broker.failure)
        await broker.abandon()
        log.error("ended: %s", broker.failure)
        _end_at_once(EXIT_FAILED)
    await broker.stop()
    if not is_started:
        log.info("the broker was stopped before it was ready to serve clients")
        _end_at_once(0)
    return 0


def _log_descriptors(config: BrokerConfig, descriptors: Descriptors) -> None:
    log.info(
        "the process may open %d files: the broker uses at most %d of them for log segments, and accepts at most "
        "max.connections=%d connections",
        descriptors.total,
        descriptors.segments,
        config.max_connections,
    )
    if config.max_connections > descriptors.connections:
        log.warning(
            "max.connections=%d is more than the limit of open files allows; set max.connections to at most %d, "
            "or raise the limit of open files",
            config.max_connections,
            descriptors.connections,
        )


def _end_at_once(exit_code: int) -> NoReturn:
    """Exit without waiting for threads that hang or still load logs."""
    logging.shutdown()
    os._exit(exit_code)
