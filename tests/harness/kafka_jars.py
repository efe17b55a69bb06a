"""Apache Kafka's jars (server, tools, Java client) or those of another pom, fetched once with Maven and kept."""

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
POM = ROOT / "tests/compat/java/pom.xml"
LOG4J = ROOT / "tests/compat/java/log4j2.properties"
CACHE = ROOT / ".cache"


class JarsMissing(Exception):
    """The jars are not there and cannot be fetched; says why."""


def jars_folder(pom: Path = POM, name: str = "kafka") -> Path:
    """The folder of jars that the pom as it is now names; Maven is asked only the first time."""
    folder = CACHE / f"{name}-jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}-jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _fetch(pom, folder)
    return folder


def _fetch(pom: Path, folder: Path) -> None:
    if shutil.which("mvn") is None:
        raise JarsMissing("mvn is not on the machine")
    partial = folder.with_suffix(f".{os.getpid()}")
    arguments = ["dependency:copy-dependencies", f"-DoutputDirectory={partial}", "-DincludeScope=runtime"]
    done = subprocess.run(
        ["mvn", "-q", "-B", "-f", str(pom), *arguments], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode != 0:
        raise JarsMissing(f"Maven could not fetch the jars: {(done.stdout + done.stderr)[-2000:]}")
    partial.rename(folder)


def java_command(
    main_class: str, *arguments: str, options: tuple[str, ...] = (), classes: Path | None = None
) -> list[str]:
    """`java` with the jars (and `classes` before them) on its class path."""
    if shutil.which("java") is None:
        raise JarsMissing("java is not on the machine")
    class_path = f"{jars_folder()}/*" if classes is None else f"{classes}:{jars_folder()}/*"
    log_options = [f"-Dlog4j2.configurationFile={LOG4J}", "-Djava.awt.headless=true"]
    return ["java", *options, *log_options, "-cp", class_path, main_class, *arguments]
