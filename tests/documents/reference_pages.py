"""The pages of all APIs and of all settings, from the tables that the broker uses for its responses.

`python -m documents.reference_pages FOLDER` writes them.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from barnabas_broker.wire.framing import ABSENT_APIS, API_SPECS, ApiSpec
from barnabas_core.config.broker_definitions import BROKER_CONFIGS
from barnabas_core.config.definitions import ConfigDefinition, Dynamic
from barnabas_core.config.group_configs import GROUP_CONFIGS
from barnabas_core.config.topic_definitions import TOPIC_CONFIGS
from barnabas_core.config.unused import REFUSED_CONFIGS, UNUSED_CONFIGS, WITHOUT_EFFECT

APIS_HEAD: Final = """# APIs and versions

What a broker answers to ApiVersions; `make reference` writes this page.
A test compares the stable versions with those of Apache Kafka 4.4.

| key | API | versions |
|---|---|---|
"""
ABSENT_HEAD: Final = """
## APIs that are not there

These APIs of a broker of Apache Kafka 4.4 are missing.
Clients know from ApiVersions not to ask; if one does, its connection is closed, as in Kafka.

| key | API |
|---|---|
"""
SETTINGS_HEAD: Final = """# Settings

`make reference` writes this page. Names, types and defaults are Kafka's. If a broker is given an unknown name or a bad
value, it says so and ends with exit code 2. `cluster-wide` and `per-broker` settings change while a broker runs
(`kafka-configs.sh`). The others need a restart, which on Kubernetes the operator does.

"""
COLUMNS: Final = "| name | default | value | changes | meaning |\n|---|---|---|---|---|\n"
INHERITING_COLUMNS: Final = "| name | default | value | broker's default | meaning |\n|---|---|---|---|---|\n"
GROUPS_HEAD: Final = """
## Groups

The configs of a group of the consumer protocol (`kafka-configs.sh --entity-type groups`). A value must be within the
bounds `group.consumer.min.*` and `group.consumer.max.*` of the broker.

"""
UNUSED_HEAD: Final = """
## Settings of Kafka that are taken and do nothing

A broker names them in a warning.

| name | why |
|---|---|
"""
REFUSED_HEAD: Final = """
## Settings of Kafka that are refused

They would promise something that does not happen.

| name | value |
|---|---|
"""


def apis_page() -> str:
    """Return the page of all APIs, in Markdown."""
    served = "".join(f"| {spec.key} | {spec.name} | {_versions(spec)} |\n" for spec in API_SPECS.values())
    absent = "".join(f"| {key} | {name} |\n" for key, name in ABSENT_APIS.items())
    return APIS_HEAD + served + ABSENT_HEAD + absent


def settings_page() -> str:
    """Return the page of all settings of brokers, topics and groups, in Markdown."""
    brokers = COLUMNS + "".join(_rows(BROKER_CONFIGS, _changes))
    topics = INHERITING_COLUMNS + "".join(_rows(TOPIC_CONFIGS, _synonym))
    groups = INHERITING_COLUMNS + "".join(_rows(GROUP_CONFIGS, _synonym))
    without_use = sorted({**UNUSED_CONFIGS, **WITHOUT_EFFECT}.items())
    taken = "".join(f"| `{name}` | {_cell(why)} |\n" for name, why in without_use)
    refused = "".join(f"| `{name}` | {_cell(refusal.why)} |\n" for name, refusal in sorted(REFUSED_CONFIGS.items()))
    used = f"## Brokers\n\n{brokers}\n## Topics\n\n{topics}{GROUPS_HEAD}{groups}"
    return f"{SETTINGS_HEAD}{used}{UNUSED_HEAD}{taken}{REFUSED_HEAD}{refused}"


def _versions(spec: ApiSpec) -> str:
    low, high = spec.min_version, spec.max_version
    return f"{low}" if low == high else f"{low} to {high}"


def _rows(definitions: Mapping[str, ConfigDefinition], more: Callable[[ConfigDefinition], str]) -> Iterator[str]:
    for name, one in sorted(definitions.items()):
        cells = (f"`{name}`", _default(one), one.allowed.removeprefix("must be "), more(one), one.documentation)
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |\n"


def _default(one: ConfigDefinition) -> str:
    if one.default is None:
        return ""
    if isinstance(one.default, tuple):
        return f"`{','.join(one.default)}`" if one.default else "empty"
    text = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
    return f"`{text}`" if text else "empty"


def _changes(one: ConfigDefinition) -> str:
    return "" if one.dynamic is Dynamic.READ_ONLY else one.dynamic.value


def _synonym(one: ConfigDefinition) -> str:
    return f"`{one.synonyms[0].name}`" if one.synonyms else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    """Write both pages."""
    folder = Path(sys.argv[1])
    (folder / "apis.md").write_text(apis_page(), encoding="utf-8")
    (folder / "settings.md").write_text(settings_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
