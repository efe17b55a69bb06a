"""Apache Kafka's own console tools, outside of the cluster."""

import shutil
import subprocess
from pathlib import Path

import pytest

from e2e.apiserver import unavailable
from e2e.binaries import CannotStart
from e2e.castle import Castle
from harness.kafka_jars import JarsMissing, jars_folder, java_command

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
LETTERS = "first\nsecond\nthird\n"
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder of the tools."""
    try:
        if shutil.which("java") is None:
            raise JarsMissing("java is not on the machine")
        return jars_folder()
    except JarsMissing as reason:
        unavailable(CannotStart(str(reason)))


def _to_write(bootstrap: str, topic: str) -> list[str]:
    settings = ("--producer-property", "acks=all", "--producer-property", "enable.idempotence=true")
    return java_command(PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic, *settings)


def _to_read(bootstrap: str, topic: str) -> list[str]:
    until = ("--max-messages", "3", "--timeout-ms", "60000")
    return java_command(CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning", *until)


def _run(command: list[str], stdin: str = "") -> str:
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_javas_console_tools_write_and_read_from_outside(castle: Castle, jars: Path) -> None:
    castle.create_topic("outside", 1)
    _run(_to_write(castle.bootstrap, "outside"), LETTERS)
    assert _run(_to_read(castle.bootstrap, "outside")) == LETTERS
