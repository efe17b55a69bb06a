"""The reference pages of APIs and settings match the broker's tables, and these the definitions of Apache Kafka."""

import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barnabas_broker.wire.framing import ABSENT_APIS, API_SPECS
from documents.reference_pages import apis_page, settings_page
from harness.kafka_jars import JarsMissing, jars_folder
from harness.require import missing

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_the_page_of_apis_matches_the_table() -> None:
    assert (REFERENCE / "apis.md").read_text(encoding="utf-8") == apis_page(), "`make reference` writes it"


def test_the_page_of_settings_matches_the_tables() -> None:
    assert (REFERENCE / "settings.md").read_text(encoding="utf-8") == settings_page(), "`make reference` writes it"


def test_the_page_of_apis_has_all_that_brokers_of_apache_kafka_have_with_the_same_versions() -> None:
    theirs = {each["apiKey"]: _versions(each) for each in _definitions() if "broker" in (each.get("listeners") or ())}
    ours = {key: (spec.min_version, spec.max_version) for key, spec in API_SPECS.items()}
    assert theirs.keys() - ours.keys() == ABSENT_APIS.keys()
    assert ours == {key: versions for key, versions in theirs.items() if key in ours}


def _definitions() -> Iterator[dict[str, Any]]:
    """Yield the definitions of all requests in the jar of the client."""
    try:
        (jar,) = jars_folder().glob("kafka-clients-*.jar")
    except JarsMissing as reason:
        missing(reason)
    with zipfile.ZipFile(jar) as files:
        for name in files.namelist():
            if re.fullmatch(r"common/message/\w+Request\.json", name):
                text = files.read(name).decode()
                yield json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))


def _versions(definition: dict[str, Any]) -> tuple[int, int]:
    """Return the lowest and the highest stable version."""
    low, _, high = definition["validVersions"].partition("-")
    return int(low), int(high or low) - bool(definition.get("latestVersionUnstable"))
