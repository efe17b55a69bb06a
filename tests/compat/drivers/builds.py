"""Builds of the drivers in other languages, one for each state of their sources; `install.sh` calls it."""

import shutil
import subprocess
from pathlib import Path

from harness.kafka_jars import POM, jars_folder, java_command
from harness.kept_builds import kept

COMPAT = Path(__file__).resolve().parents[1]
CLIENTS_3_POM = COMPAT / "java/clients-3/pom.xml"
BUILD_SECONDS_MAX = 600
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dlog.level=ERROR")


class ToolMissing(Exception):
    """The error that a compiler or runtime is not on the machine, with its name."""


def require(tool: str) -> str:
    """Return the path of a program on the machine."""
    path = shutil.which(tool)
    if path is None:
        raise ToolMissing(f"{tool} is not on the machine")
    return path


def _run(*command: str, folder: Path = COMPAT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX)
    assert done.returncode == 0, f"{' '.join(command[:3])} failed: {done.stdout}{done.stderr}"


def java_classes() -> Path:
    """Return the folder of the compiled Java driver."""
    require("javac")
    sources = sorted((COMPAT / "java/src").rglob("*.java"))

    def build(target: Path) -> None:
        target.mkdir()
        _run("javac", "-d", str(target), "-cp", f"{jars_folder()}/*", *map(str, sources))

    return kept("compat-java", [POM, *sources], build)


def java_driver(bootstrap: str) -> list[str]:
    """Return the command that starts the Java driver."""
    return java_command("compat.Driver", bootstrap, options=JAVA_OPTIONS, before=[java_classes()])


def java_3_driver(bootstrap: str) -> list[str]:
    """Return the command that starts the Java driver with the last client before 4.0; it runs no tools."""
    (client,) = jars_folder(CLIENTS_3_POM, "kafka-clients-3").glob("kafka-clients-*.jar")
    return java_command("compat.Driver", bootstrap, options=JAVA_OPTIONS, before=[java_classes(), client])


def go_driver(bootstrap: str) -> list[str]:
    """Return the command that starts the franz-go driver."""
    require("go")
    folder = COMPAT / "go"
    sources = [*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"]
    return [
        str(kept("compat-go", sources, lambda target: _run("go", "build", "-o", str(target), folder=folder))),
        bootstrap,
    ]


def node_driver(bootstrap: str) -> list[str]:
    """Return the command that starts the kafkajs driver."""
    require("npm")
    sources = [COMPAT / "js" / name for name in ("driver.js", "transactions.js", "package.json", "package-lock.json")]

    def build(target: Path) -> None:
        target.mkdir()
        for source in sources:
            shutil.copy(source, target)
        _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=target)

    return [require("node"), str(kept("compat-js", sources, build) / "driver.js"), bootstrap]


if __name__ == "__main__":
    for driver in (java_driver, java_3_driver, go_driver, node_driver):
        print(" ".join(driver("HOST:PORT")))
