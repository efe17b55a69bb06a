"""The laptop tutorial does what it says; tests/e2e/pods/test_pages_on_kubernetes.py reads the one for Kubernetes."""

from pathlib import Path

import pytest

from documents.alone import read_alone
from documents.pages import DOCS


@pytest.mark.slow
def test_every_command_of_the_laptop_tutorial_does_what_the_page_says(tmp_path: Path) -> None:
    assert "\n$ kill -9 " in read_alone(tmp_path, DOCS / "tutorials" / "laptop.md")
