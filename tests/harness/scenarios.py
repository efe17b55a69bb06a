"""Plays scenarios that are documents: each command, and its outcome below `----`.

With WRITE_SCENARIOS=1 the tests write the outcomes again; read the difference.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Scene(Protocol):
    """The stage of a scenario: its methods are the commands."""

    def describe(self) -> str:
        """Return the outcome of the last commands."""
        ...


def played(text: str, scene: Scene) -> str:
    """Return the document as the real classes write it."""
    written: list[str] = []
    for part in text.strip().split("\n\n"):
        command = part.split("\n----")[0]
        written.append(command)
        if not command.startswith("#"):
            for line in command.splitlines():
                name, *arguments = line.split()
                work: Callable[..., None] = getattr(scene, name.replace("-", "_"))
                named = dict(argument.split("=") for argument in arguments if "=" in argument)
                work(*(argument for argument in arguments if "=" not in argument), **named)
            written[-1] += f"\n----\n{scene.describe()}"
    return "\n\n".join(written) + "\n"


def check_scenario(path: Path, scene: Scene) -> None:
    """Fail unless the document says what the scene does."""
    text = path.read_text(encoding="utf-8")
    found = played(text, scene)
    if os.environ.get("WRITE_SCENARIOS"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == text
