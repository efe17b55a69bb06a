"""The how-to pages for one machine do what they say, each beside its own `barnabas up`."""

import shlex
import shutil
from pathlib import Path

import pytest

from documents.alone import read_alone
from documents.how_to import ON_ONE_MACHINE
from documents.pages import DOCS
from drivers.kafka_tools import MAIN_CLASSES
from harness.kafka_jars import java_command
from harness.require import require

pytestmark = pytest.mark.soak(only=True)

BEFORE = Path(__file__).with_name("one_machine.md")


def write_kafka_tools(folder: Path) -> Path:
    """Make a folder of programs such as kafka-configs.sh."""
    require(shutil.which("java"), "java: apt-get install default-jre-headless")
    folder.mkdir()
    for name, main_class in MAIN_CLASSES.items():
        tool = folder / name
        tool.write_text(f'#!/bin/sh\nexec {shlex.join(java_command(main_class))} "$@"\n', encoding="utf-8")
        tool.chmod(0o755)
    return folder


@pytest.mark.parametrize("page", ON_ONE_MACHINE)
def test_every_command_of_a_how_to_page_does_what_the_page_says(tmp_path: Path, page: str) -> None:
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    programs = write_kafka_tools(tmp_path / "programs")
    print(read_alone(tmp_path, BEFORE, DOCS / "how-to" / f"{page}.md", programs=programs))
