"""Builds the drivers in other languages, once for each state of their sources; `install.sh` calls it."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.kafka_jars import CACHE, jars_folder, java_command

COMPAT = Path(__file__).resolve().parents[1]
BUILD_SECONDS_MAX = 600


class ToolMissing(Exception):
    """A compiler or runtime is not on the machine; says which."""


def require(tool: str) -> str:
    """The path of a program on the machine."""
    path = shutil.which(tool)
    if path is None:
        raise ToolMissing(f"{tool} is not on the machine")
    return path


@contextmanager
def _locked(name: str) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _built(name: str, sources: list[Path], build: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()[:12]
    target = CACHE / f"{name}-{digest}"
    with _locked(name):
        if not target.exists():
            partial = target.with_suffix(f".{os.getpid()}")
            build(partial)
            partial.rename(target)
    return target


def _run(*command: str, folder: Path = COMPAT) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX)
    assert done.returncode == 0, f"{' '.join(command[:3])} failed: {done.stdout}{done.stderr}"


def java_classes() -> Path:
    """The folder of the compiled Java driver."""
    require("javac")
    sources = sorted((COMPAT / "java/src").rglob("*.java"))

    def build(target: Path) -> None:
        target.mkdir()
        _run("javac", "-d", str(target), "-cp", f"{jars_folder()}/*", *map(str, sources))

    return _built("compat-java", sources, build)


def java_driver(bootstrap: str) -> list[str]:
    """The command that starts the Java driver."""
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m", "-Dlog.level=ERROR")
    return java_command("compat.Driver", bootstrap, options=options, classes=java_classes())


def go_driver(bootstrap: str) -> list[str]:
    """The command that starts the franz-go driver."""
    require("go")
    folder = COMPAT / "go"
    sources = [*folder.glob("*.go"), folder / "go.mod", folder / "go.sum"]
    return [
        str(_built("compat-go", sources, lambda target: _run("go", "build", "-o", str(target), folder=folder))),
        bootstrap,
    ]


def node_driver(bootstrap: str) -> list[str]:
    """The command that starts the kafkajs driver."""
    require("npm")
    folder = COMPAT / "js"
    with _locked("compat-js"):
        if not (folder / "node_modules/.package-lock.json").exists():
            _run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", folder=folder)
    return [require("node"), str(folder / "driver.js"), bootstrap]


if __name__ == "__main__":
    for driver in (java_driver, go_driver, node_driver):
        print(" ".join(driver("HOST:PORT")))
