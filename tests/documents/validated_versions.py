"""The versions of the clients and programs in tests, each from the file or the program that decides it."""

import importlib.metadata
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import confluent_kafka

from monitoring.prometheus_programs import prometheus_programs

TESTS: Final = Path(__file__).resolve().parents[1]
OF_THE_MACHINE: Final = frozenset({"kcat", "postgresql", "prometheus"})
"""Programs of the machine: the page may have another version of them."""


def _of_file(file: str, pattern: str) -> Callable[[], str]:
    """Return a function that finds the version in a file of the tests."""
    return lambda: re.findall(pattern, (TESTS / file).read_text("utf-8"))[0]


def _of_package(name: str) -> Callable[[], str]:
    """Return a function that asks for the version of an installed package."""
    return lambda: importlib.metadata.version(name)


def _librdkafka() -> str:
    version, package = confluent_kafka.libversion()[0], importlib.metadata.version("confluent-kafka")
    return f"{version} (confluent-kafka {package})"


def _kafkajs() -> str:
    return str(json.loads((TESTS / "compat" / "js" / "package.json").read_text("utf-8"))["dependencies"]["kafkajs"])


def _kcat() -> str:
    kcat, librdkafka = _printed(["kcat", "-V"], r"Version ([\d.]+).*librdkafka ([\d.]+)")
    return f"{kcat} (librdkafka {librdkafka})"


def _prometheus() -> str:
    (version,) = _printed([str(prometheus_programs() / "prometheus"), "--version"], r"version ([\d.]+)")
    return version


def _postgresql() -> str:
    (version,) = _printed(["postgres", "--version"], r"([\d.]+)")
    return version


def _printed(command: list[str], pattern: str) -> tuple[str, ...]:
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(pattern, said.stdout + said.stderr, re.DOTALL)
    assert found, f"{' '.join(command)} prints no version"
    return found.groups()


VERSIONS: Final[Mapping[str, Callable[[], str]]] = {
    "librdkafka": _librdkafka,
    "kafka-python": _of_package("kafka-python"),
    "aiokafka": _of_package("aiokafka"),
    "java": _of_file("compat/java/pom.xml", r"<kafka.version>([\d.]+)<"),
    "java-3": _of_file("compat/java/clients-3/pom.xml", r"<version>(3[\d.]+)</version>"),
    "franz-go": _of_file("compat/go/go.mod", r"franz-go v([\d.]+)"),
    "kafkajs": _kafkajs,
    "kcat": _kcat,
    "kafka-streams": _of_file("exactly_once/streams/pom.xml", r"<version>([\d.]+\.[\d.]+)</version>"),
    "kafka-connect": _of_file("compat/java/pom.xml", r"<kafka.version>([\d.]+)<"),
    "spark": _of_package("pyspark"),
    "polars": _of_package("polars"),
    "pyiceberg": _of_package("pyiceberg"),
    "iceberg": _of_file("../spark-on-k8s/tests/catalog_servers.py", r"iceberg-spark-runtime[^,]*,\s*\"([\d.]+)\""),
    "postgresql": _postgresql,
    "prometheus": _prometheus,
    "keda": _of_file("e2e/topics_and_groups/test_other_autoscalers.py", r"keda/v2@v([\d.]+)"),
}
