"""The page of clients that were tried, from the report of their tests.

`python -m documents.validated_page JUNIT.XML PAGE` writes it; `make validated` runs the tests first.
"""

import importlib.metadata
import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).resolve().parents[2]
COMPAT: Final = ROOT / "tests" / "compat"
HEAD: Final = """# Clients that were tried

`make validated` runs these tests against brokers of Barnabas and writes this page. `make test` has more: TLS, SASL,
failovers, Kafka's own tools. `.venv/bin/pytest --peer=kafka tests/compat` runs the same tests against Apache Kafka.

| client | version | what was tried | result |
|---|---|---|---|
"""


def _librdkafka() -> str:
    return f"of confluent-kafka {importlib.metadata.version('confluent-kafka')}"


def _kcat() -> str:
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False)
    found = re.search(r"Version ([\d.]+).*librdkafka ([\d.]+)", said.stdout + said.stderr, re.DOTALL)
    assert found, "kcat -V says no version"
    return f"{found[1]}, librdkafka {found[2]}"


def _franz_go() -> str:
    return str(re.findall(r"franz-go v([\d.]+)", (COMPAT / "go" / "go.mod").read_text("utf-8"))[0])


def _kafkajs() -> str:
    return str(json.loads((COMPAT / "js" / "package.json").read_text("utf-8"))["dependencies"]["kafkajs"])


def _java() -> str:
    return str(re.findall(r"<kafka.version>([\d.]+)<", (COMPAT / "java" / "pom.xml").read_text("utf-8"))[0])


def _java_3() -> str:
    pom = (COMPAT / "java" / "clients-3" / "pom.xml").read_text("utf-8")
    return str(re.findall(r"<version>(3[\d.]+)</version>", pom)[0])


VERSIONS: Final[Mapping[str, Callable[[], str]]] = {
    "librdkafka": _librdkafka,
    "kafka-python": lambda: importlib.metadata.version("kafka-python"),
    "aiokafka": lambda: importlib.metadata.version("aiokafka"),
    "java": _java,
    "java-3": _java_3,
    "franz-go": _franz_go,
    "kafkajs": _kafkajs,
    "kcat": _kcat,
}


def outcomes(report: Path) -> dict[tuple[str, str], list[str]]:
    """Return the results of each client's tests of a behaviour: "passed", "failed" or "not run"."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for case in ElementTree.parse(report).iter("testcase"):
        # xdist appends the group of a test to its name.
        function, _, parameters = case.attrib["name"].partition("@")[0].removesuffix("]").partition("[")
        client = _client(case.attrib["classname"], parameters)
        skipped = case.find("skipped")
        failed = case.find("failure") is not None or case.find("error") is not None
        result = "failed" if failed else "passed" if skipped is None else "not run"
        found[client, function.removeprefix("test_").replace("_", " ")].append(result)
    return found


def _client(module: str, parameters: str) -> str:
    if module.endswith("test_kcat"):
        return "kcat"
    return max((name for name in VERSIONS if re.search(rf"(^|-){name}(-|$)", parameters)), key=len)


def rows(found: Mapping[tuple[str, str], list[str]]) -> Iterator[str]:
    """Yield the lines of the table, client by client."""
    for (client, tried), results in sorted(found.items()):
        result = "passed" if set(results) == {"passed"} else ", ".join(sorted(set(results)))
        yield f"| {client} | {VERSIONS[client]()} | {tried} | {result} |\n"


def main() -> None:
    """Write the page."""
    report, page = map(Path, sys.argv[1:])
    page.write_text(HEAD + "".join(rows(outcomes(report))), encoding="utf-8")


if __name__ == "__main__":
    main()
