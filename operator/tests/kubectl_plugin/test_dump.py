"""What `kubectl barnabas dump` writes."""

import io
import tarfile
from typing import Any

import pytest

from barnabas_kubectl.dump import Entry, archive, without_secrets

SECRETS: dict[str, tuple[Any, Any]] = {
    "a value by its name": ({"password": "x1", "user": "anna"}, {"password": "[removed]", "user": "anna"}),
    "a name in upper case": ({"SASL_JAAS_CONFIG": "x"}, {"SASL_JAAS_CONFIG": "[removed]"}),
    "a line of a file": (
        {"server.properties": "node.id=0\nssl.key.password=x2\nsasl.jaas.config = a b;\nlog.dirs=/d"},
        {"server.properties": "node.id=0\nssl.key.password=[removed]\nsasl.jaas.config = [removed]\nlog.dirs=/d"},
    ),
    "lists": ([{"token": "x3"}, 1, None], [{"token": "[removed]"}, 1, None]),
    "the annotation with the whole manifest": (
        {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}},
        {"annotations": {"a": "b"}},
    ),
    "a variable of a container": (
        {"name": "DB_PASSWORD", "value": "x4"},
        {"name": "DB_PASSWORD", "value": "[removed]"},
    ),
    "the name of a Secret stays": ({"secretName": "flights-admin"}, {"secretName": "flights-admin"}),
}


@pytest.mark.parametrize(("found", "kept"), SECRETS.values(), ids=SECRETS)
def test_values_under_secret_names_are_replaced(found: Any, kept: Any) -> None:
    assert without_secrets(found) == kept


def test_the_archive_lists_its_files_and_what_is_missing() -> None:
    made = archive([Entry("logs/a.log", b"one\n"), Entry("nodes.txt", b"", "no right")], "dump", 1_700_000_000)
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        assert tar.getnames() == ["dump/CONTENTS.txt", "dump/logs/a.log"]
        listed = tar.extractfile("dump/CONTENTS.txt")
        assert listed is not None
        assert listed.read().decode() == "         4  logs/a.log\n   missing  nodes.txt: no right\n"
