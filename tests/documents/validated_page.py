"""The page of validated clients and programs: its rows are in `validated.toml`, the results come from a test run.

`python -m documents.validated_page PAGE` runs the tests and writes the page. `--reports` takes the JUnit reports of
earlier runs, and `--check` compares the page with the table.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from documents.validated_versions import OF_THE_MACHINE, VERSIONS

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = Path(__file__).with_suffix(".toml").with_stem("validated")
HEAD: Final = """# Validated clients and programs

`make validated` runs these tests against brokers of Barnabas and writes this page.
Versions and results are those of its last run; — means that it had no such test.
`.venv/bin/pytest --peer=kafka tests/compat` runs the tests of clients against Apache Kafka.

## Client libraries

"""
FOOT: Final = """
## Tried by hand

These worked in November 2026 as with Apache Kafka 4.3.1, and no test repeats that: kminion, Burrow, kafka_exporter,
topicctl, kafka-go, kafkactl, MirrorMaker 2, Debezium, Flink (at least once), Faust, Quix Streams, Bytewax, rsyslog,
Celery.

The controllers of cert-manager 1.21.2 for Certificates and for Issuers of the types `selfSigned` and `ca` ran against
an API server without pods, started by a main function of our own. They made and renewed
[authorities of a Cluster](../how-to/security.md#an-authority-of-your-own), and keystores of a broker. The operator took
their Secrets, and clients of librdkafka connected to a broker with the operator's files.
"""
EMPTY: Final = "—"
"""The cell of a client that a test does not have."""


class Behaviour(NamedTuple):
    """A test that several clients pass: its module, its function, and what they do in it."""

    module: str
    test: str
    what: str


class Program(NamedTuple):
    """A program: its name in `VERSIONS`, its title, what it does, and the modules that run it."""

    name: str
    title: str
    what: str
    modules: list[str]
    soak: bool = False
    """True if only the long form of the tests runs it."""


class Table(NamedTuple):
    """All rows of the page."""

    clients: dict[str, str]
    """The titles of clients by their names in tests."""
    behaviours: list[Behaviour]
    programs: list[Program]


class Case(NamedTuple):
    """One test of a run, with its result: "passed", "failed" or "not run"."""

    module: str
    function: str
    parameters: str
    result: str


def table() -> Table:
    """Read the table."""
    found = tomllib.loads(TABLE.read_text("utf-8"))
    clients = {row["name"]: row["title"] for row in found["client"]}
    return Table(
        clients, [Behaviour(**row) for row in found["behaviour"]], [Program(**row) for row in found["program"]]
    )


def cases(report: Path) -> Iterator[Case]:
    """Yield the tests of a JUnit report."""
    for case in ElementTree.parse(report).iter("testcase"):
        # xdist appends the group of a test to its name.
        function, _, parameters = case.attrib["name"].partition("@")[0].removesuffix("]").partition("[")
        failed = case.find("failure") is not None or case.find("error") is not None
        result = "failed" if failed else "passed" if case.find("skipped") is None else "not run"
        yield Case(case.attrib["classname"].replace(".", "/") + ".py", function, parameters, result)


def client_of(parameters: str, clients: Iterable[str]) -> str:
    """Return the client that a test names, the longest name first, or "" if it names none."""
    named = [name for name in clients if re.search(rf"(^|-){name}(-|$)", parameters)]
    return max(named, key=len, default="")


def summary(results: Iterable[str]) -> str:
    """Return the results in one cell: `7 passed`, `1 failed, 6 passed`, or nothing."""
    return ", ".join(f"{count} {result}" for result, count in sorted(Counter(results).items())) or EMPTY


def page(rows: Table, ran: list[Case]) -> str:
    """Return the page with the results of a run."""
    return HEAD + "".join([*_clients(rows, ran), "\n## Programs\n\n", *_programs(rows, ran)]) + FOOT


def _clients(rows: Table, ran: list[Case]) -> Iterator[str]:
    yield _line(["", *(f"{title} {VERSIONS[name]()}" for name, title in rows.clients.items())])
    yield "|---" * (len(rows.clients) + 1) + "|\n"
    for row in rows.behaviours:
        of_row = [case for case in ran if (case.module, case.function) == (row.module, row.test)]
        results: Mapping[str, list[str]] = {name: [] for name in rows.clients}
        for case in of_row:
            if client := client_of(case.parameters, rows.clients):
                results[client].append(case.result)
        yield _line([row.what, *map(summary, results.values())])


def _programs(rows: Table, ran: list[Case]) -> Iterator[str]:
    yield _line(["program", "version", "what was tried", "tests", "result"]) + "|---|---|---|---|---|\n"
    for row in rows.programs:
        results = [case.result for case in ran if case.module in row.modules]
        results += ["not run"] * len(set(row.modules) - {case.module for case in ran})
        modules = ", ".join(f"`{module}`" for module in row.modules)
        yield _line([row.title, VERSIONS[row.name](), row.what, modules, summary(results)])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def differences(rows: Table, written: str) -> Iterator[str]:
    """Yield the differences of the page from the table and the current versions; results are those of its run."""
    named = [(row.module, row.test) for row in rows.behaviours]
    named += [(module, "test_") for row in rows.programs for module in row.modules]
    for module, test in named:
        file = ROOT / module
        if not file.is_file() or f"def {test}" not in file.read_text("utf-8"):
            yield f"{module} has no {test}: correct {TABLE.name}"
    for name, title in rows.clients.items():
        if f"| {title} {VERSIONS[name]()} |" not in written:
            yield f"the page has no {title} {VERSIONS[name]()}"
    for title, what in [
        *((row.title, row.what) for row in rows.programs),
        *((row.what, "") for row in rows.behaviours),
    ]:
        if not re.search(rf"^\| {re.escape(title)} \|.*{re.escape(what)}", written, re.MULTILINE):
            yield f"the page has no row of {title!r} as {TABLE.name} has it"
    for row in rows.programs:
        if row.name not in OF_THE_MACHINE and f"| {row.title} | {VERSIONS[row.name]()} |" not in written:
            yield f"the page has no {row.title} {VERSIONS[row.name]()}"


def run(rows: Table, folder: Path) -> list[Case]:
    """Run all tests of the table; return their results."""
    soak = {module for row in rows.programs if row.soak for module in row.modules}
    every = {row.module for row in rows.behaviours} | {module for row in rows.programs for module in row.modules}
    ran: list[Case] = []
    for name, modules, variables in (("usual", every - soak, {}), ("soak", soak, {"BARNABAS_SOAK": "true"})):
        report = folder / f"{name}.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", f"--junitxml={report}", *sorted(modules)]
        subprocess.run(command, cwd=ROOT, env={**os.environ, **variables}, check=False)
        ran += cases(report)
    return ran


def main() -> int:
    """Write the page, or print where it differs from the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--reports", type=Path, nargs="+", metavar="XML", help="run nothing; take these results")
    parser.add_argument("--check", action="store_true", help="run nothing; compare the page with the table")
    arguments = parser.parse_args()
    rows = table()
    if not arguments.check:
        with tempfile.TemporaryDirectory() as folder:
            given = [case for report in arguments.reports or () for case in cases(report)]
            arguments.page.write_text(page(rows, given or run(rows, Path(folder))), encoding="utf-8")
    wrong = list(differences(rows, arguments.page.read_text("utf-8")))
    print("\n".join(wrong) or "validated: fine")
    if wrong:
        print(f"`make validated` writes {arguments.page}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
