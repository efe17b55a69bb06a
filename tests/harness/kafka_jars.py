"""Fetches Apache Kafka's jars (server, tools, Java client), or those of another pom, once with Maven; keeps them."""

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from harness.kept_builds import kept

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests/compat/java/pom.xml"
LOG4J = ROOT / "tests/compat/java/log4j2.properties"


class JarsMissing(Exception):
    """The error that the jars are missing and cannot be fetched, with the reason."""


def jars_folder(pom: Path = POM, name: str = "kafka") -> Path:
    """Return the folder with the jars of the pom; only the first call asks Maven."""
    return kept(f"{name}-jars", [pom], partial(_fetch, pom))


def _fetch(pom: Path, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsMissing("mvn is not on the machine")
    arguments = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}", "-DincludeScope=runtime"]
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *arguments], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        raise JarsMissing(f"Maven could not fetch the jars: {(done.stdout + done.stderr)[-2000:]}")


def java_command(
    main_class: str, *arguments: str, options: tuple[str, ...] = (), before: Sequence[Path] = ()
) -> list[str]:
    """Return a `java` command with the jars on its class path, and other paths before them."""
    if shutil.which("java") is None:
        raise JarsMissing("java is not on the machine")
    class_path = ":".join([*map(str, before), f"{jars_folder()}/*"])
    log_options = [f"-Dlog4j2.configurationFile={LOG4J}", "-Djava.awt.headless=true"]
    return ["java", *options, *log_options, "-cp", class_path, main_class, *arguments]
